//! Hosts that the output of `srun` names as failed.

use hydrant_placement::{Host, hostlist};

/// Finds the host that srun's output says a task of the step has ended on, or could not be started on.
pub(crate) fn ended_host<'h>(output: &str, hosts: &'h [Host]) -> Option<(usize, &'h Host)> {
    let complete = output.rfind('\n').map_or("", |end| &output[..end]);
    let names = complete.lines().find_map(|line| {
        let error = line.split_once("error: ")?.1;
        let of_task = error.split_once(": task").map(|(names, _)| names);
        let of_launch = error.split_once(" failed on node ").map(|(_, rest)| rest);
        of_task.or_else(|| of_launch?.split(':').next())
    })?;
    let names = hostlist::expand(names.trim()).ok()?;
    hosts.iter().enumerate().find(|(_, host)| names.contains(&host.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sruns_output_names_the_host() {
        let hosts = ["n1", "n2", "n3"].map(Host::new);
        let ended = |text: &str| ended_host(text, &hosts).map(|(at, host)| (at, host.name.clone()));
        assert_eq!(ended("srun: error: n2: task 1: Exited with exit code 1\n"), Some((1, "n2".into())));
        assert_eq!(ended("x\nsrun: error: n[2-3]: tasks 1-2: Killed\nsrun: Term"), Some((1, "n2".into())));
        let launch = "srun: error: Task launch for StepId=3.0 failed on node n3: Invalid job credential\n";
        assert_eq!(ended(launch), Some((2, "n3".into())));
        assert_eq!(ended("srun: error: n2: task 1"), None);
        assert_eq!(ended("srun: error: Unable to create step\n"), None);
    }
}
