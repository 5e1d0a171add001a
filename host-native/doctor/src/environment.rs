//! Checks of environment variables: another launcher around, settings of MPI libraries.

use crate::finding::Finding;
use crate::machine::Machine;

/// Variables that a launcher sets for its ranks, and its name.
const LAUNCHERS: [(&str, &str); 9] = [
    ("HYDRANT_KVS", "hydrant"),
    ("PRTE_LAUNCHED", "PRRTE (Open MPI)"),
    ("OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"),
    ("HYDI_CONTROL_FD", "hydra (MPICH)"),
    ("PALS_RANKID", "PALS (HPE Cray)"),
    ("JSM_NAMESPACE_RANK", "jsrun (IBM)"),
    ("PMIX_RANK", "a PMIx launcher"),
    ("PMI_RANK", "a PMI launcher"),
    ("PMI_FD", "a PMI launcher"),
];
/// Prefixes of variables that set up an MPI library or its transport.
const SETTINGS: [&str; 6] = ["MPIR_CVAR_", "OMPI_MCA_", "PMIX_MCA_", "I_MPI_", "UCX_", "FI_"];
/// Maximum number of names in a finding.
const NAMES_MAX: usize = 12;

pub(crate) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![launcher(machine)];
    findings.extend(settings(machine));
    findings
}

fn launcher(machine: &Machine) -> Finding {
    const TOPIC: &str = "launchers";
    let found = LAUNCHERS.iter().find(|(variable, _)| machine.variable(variable).is_some());
    match found {
        Some((variable, name)) => Finding::note(
            TOPIC,
            format!("{variable} is set: this process is a rank of {name}"),
            Some(
                "hydrant removes such variables from its ranks; start hydrant outside of that job if it should use all of its hosts",
            ),
        ),
        None if machine.variable("SLURM_PROCID").is_some() && machine.variable("SLURM_STEP_ID").is_some() => {
            Finding::note(
                TOPIC,
                "this process is a task of a Slurm step",
                Some("start hydrant once in the job script, not by srun in each task"),
            )
        }
        None => Finding::ok(TOPIC, "no other launcher around"),
    }
}

fn settings(machine: &Machine) -> Option<Finding> {
    let names = machine.variables.keys().map(|name| name.to_string_lossy());
    let names: Vec<_> = names.filter(|name| SETTINGS.iter().any(|prefix| name.starts_with(prefix))).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    let mut list = names[..names.len() - more].join(", ");
    if more > 0 {
        list += &format!(" and {more} more");
    }
    (!names.is_empty()).then(|| Finding::ok("MPI settings", format!("ranks inherit {list}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Root;

    #[test]
    fn launchers_and_settings_are_known_by_their_variables() {
        let root = Root::new("environment");
        let mut machine = root.machine();
        assert_eq!(check(&machine), [Finding::ok("launchers", "no other launcher around")]);
        machine.variables.insert("PMI_RANK".into(), "3".into());
        machine.variables.insert("OMPI_MCA_btl".into(), "self".into());
        let findings = check(&machine);
        assert_eq!(findings[0].level, Level::Note);
        assert!(findings[0].text.contains("a PMI launcher"), "{findings:?}");
        assert_eq!(findings[1].text, "ranks inherit OMPI_MCA_btl");
        machine.variables.insert("PRTE_LAUNCHED".into(), "1".into());
        assert!(launcher(&machine).text.contains("PRRTE"));
        machine.variables.clear();
        for number in 0..20 {
            machine.variables.insert(format!("UCX_{number:02}").into(), "1".into());
        }
        assert!(check(&machine)[1].text.ends_with("UCX_11 and 8 more"));
    }

    #[test]
    fn a_task_of_slurm_is_told_from_a_job_script() {
        let root = Root::new("slurm");
        let mut machine = root.machine();
        machine.variables.insert("SLURM_PROCID".into(), "0".into());
        assert_eq!(launcher(&machine).level, Level::Ok);
        machine.variables.insert("SLURM_STEP_ID".into(), "0".into());
        assert_eq!(launcher(&machine).level, Level::Note);
    }
}
