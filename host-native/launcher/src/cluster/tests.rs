//! From command lines and environments to places.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::cli::{self, Action};

/// A file that is removed again.
pub(super) struct File(PathBuf);

impl File {
    pub(super) fn new(text: &[u8]) -> File {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hydrant-hosts-{}-{number}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn name(&self) -> &str {
        self.0.to_str().expect("a path of ASCII")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn plan(line: &str) -> Plan {
    let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    words.insert(0, "mpiexec".into());
    match cli::parse(words, Vec::new()) {
        Ok(Action::Run(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    }
}

/// Hands on what a machine of that environment is.
fn around<T>(environment: &[(&str, &str)], then: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let value =
        |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    then(&Surroundings { host: "here.example".to_owned(), variables: &value })
}

fn located(line: &str, environment: &[(&str, &str)]) -> Result<Location, ClusterError> {
    around(environment, |around| locate(&mut plan(line), around))
}

fn described(line: &str, environment: &[(&str, &str)]) -> String {
    let hydrant = OsStr::new("/usr/bin/hydrant");
    around(environment, |around| {
        let mut plan = plan(line);
        let location = locate(&mut plan, around).unwrap();
        describe(&plan, &location, around, hydrant).unwrap()
    })
}

const SLURM: [(&str, &str); 2] = [("SLURM_JOB_NODELIST", "n[01-02]"), ("SLURM_TASKS_PER_NODE", "4(x2)")];

#[test]
fn without_hosts_and_with_this_one_alone_it_stays_here() {
    let one = [("SLURM_JOB_NODELIST", "n01"), ("SLURM_TASKS_PER_NODE", "4"), ("SLURMD_NODENAME", "n01")];
    for (line, environment) in [
        ("-n 4 a", &[] as &[(&str, &str)]),
        ("-hosts here:2 -n 4 a", &[]),
        ("-host localhost a", &SLURM),
        ("-hosts here.example,here.example a", &[]),
        ("-n 4 a", &one),
    ] {
        assert_eq!(located(line, environment).unwrap(), Location::Here, "{line}");
    }
    // As PBS names a host: by another of its networks (open-mpi/ompi#3133).
    let lone = File::new(b"here.ib0.hpc.example\nhere.ib0.hpc.example\n");
    let of_pbs = [("PBS_NODEFILE", lone.name())];
    assert_eq!(located("-n 2 a", &of_pbs).unwrap(), Location::Here);
    for (line, environment) in [
        ("-hosts here.ib0.hpc.example a", &of_pbs as &[(&str, &str)]),
        ("-hosts there a", &[]),
        ("-hosts here,localhost a", &[]),
        ("-hosts here -bootstrap local a", &[]),
        ("-launcher fork a", &[]),
        ("a", &SLURM),
        ("a", &one[..2]),
    ] {
        assert!(matches!(located(line, environment), Ok(Location::Nodes(_))), "{line}");
    }
}

#[test]
fn what_is_asked_for_holds_over_what_is_found() {
    let layout = |line: &str, environment: &[(&str, &str)]| match located(line, environment) {
        Ok(Location::Nodes(layout)) => layout,
        other => panic!("{line}: {other:?}"),
    };
    let names = |layout: &JobMap| -> Vec<String> {
        layout.placement.nodes().iter().map(|node| node.host.name.clone()).collect()
    };
    let found = layout("-n 8 a", &SLURM);
    assert_eq!((found.batch, &found.bootstrap), (Some(Batch::Slurm), &Bootstrap::Srun));
    assert_eq!(names(&found), ["n01", "n02"]);
    let named = layout("-hosts n02,x -n 8 a", &SLURM);
    assert_eq!(
        (named.batch, &named.bootstrap, names(&named)),
        (None, &Bootstrap::Srun, vec!["n02".into(), "x".into()])
    );
    assert_eq!(layout("-bootstrap ssh a", &SLURM).bootstrap, Bootstrap::Ssh);
    assert_eq!(layout("-hosts a,b a", &[]).bootstrap, Bootstrap::Ssh);
    // A broken allocation does no harm where hosts are named.
    let broken = [("SLURM_JOB_NODELIST", "n[1")];
    assert!(located("-hosts a,b a", &broken).is_ok() && located("a", &broken).is_err());
}

#[test]
fn without_a_number_of_ranks_the_hosts_are_filled() {
    let ranks = |line: &str, environment: &[(&str, &str)]| -> Vec<u32> {
        let mut plan = plan(line);
        around(environment, |around| locate(&mut plan, around)).unwrap();
        plan.programs.iter().map(|program| program.ranks).collect()
    };
    for (line, environment, expected) in [
        ("a", &[] as &[(&str, &str)], &[1u32] as &[u32]),
        ("a", &SLURM, &[8]),
        ("-n 2 a", &SLURM, &[2]),
        ("a : -n 1 b : c", &SLURM, &[8, 1, 8]),
        ("-hosts here:3 a", &[], &[3]),
        ("-hosts a:3,b a", &[], &[4]),
        ("-hosts a:3,b -ppn 2 a", &[], &[4]),
        ("-hosts a:3,b -rr a", &[], &[2]),
    ] {
        assert_eq!(ranks(line, environment), expected, "{line}");
    }
    let few = File::new(b"a slots=2 max_slots=3\nb max_slots=1\n");
    assert_eq!(ranks(&format!("-f {} -ppn 9 a", few.name()), &[]), [4]);
    let many =
        |count: u32| located(&format!("-hosts a:{count},b:{count} a : a"), &[]).unwrap_err().to_string();
    for count in [u32::MAX, u32::MAX / 2, u32::MAX / 4] {
        assert!(many(count).contains(" ranks, but at most 16777216 can run on several hosts"), "{count}");
    }
}

#[test]
fn a_parallel_job_of_sge_starts_its_daemons_by_qrsh() {
    let hosts = File::new(b"n1.q 2 all.q@n1.q UNDEFINED\nn2.q 2 all.q@n2.q UNDEFINED\n");
    let of_job =
        |hosts| [("PE_HOSTFILE", hosts), ("HOSTNAME", "n1.q"), ("SGE_ROOT", "/opt/sge"), ("ARC", "lx-amd64")];
    let plan = described("-n 4 a", &of_job(hosts.name()));
    let bootstrap = plan.lines().skip_while(|line| !line.starts_with("bootstrap")).collect::<Vec<_>>();
    assert_eq!(
        bootstrap[..3],
        [
            "bootstrap: qrsh, heartbeat 30 s",
            "  node 1: /usr/bin/hydrant daemon",
            "  node 2: /opt/sge/bin/lx-amd64/qrsh -inherit n2.q '/usr/bin/hydrant daemon'"
        ]
    );
    // SGE's name of this machine, which calls itself otherwise.
    let one = File::new(b"n1.q 4 all.q@n1.q UNDEFINED\n");
    assert_eq!(located("-n 4 a", &of_job(one.name())).unwrap(), Location::Here);
    let in_slurm = [&SLURM[..], &of_job(hosts.name())].concat();
    let Ok(Location::Nodes(layout)) = located("a", &in_slurm) else { panic!("two hosts") };
    assert_eq!(layout.bootstrap, Bootstrap::Srun);
}

#[test]
fn a_single_host_that_is_full_is_full_here_too() {
    let file = File::new(b"localhost max_slots=2\n");
    let error = located(&format!("-f {} -n 3 a", file.name()), &[]).unwrap_err();
    assert!(matches!(error, ClusterError::Full { ranks: 3, room: 2 }), "{error}");
    assert_eq!(located(&format!("-f {} -n 2 a", file.name()), &[]).unwrap(), Location::Here);
}

#[test]
fn a_user_is_for_ssh() {
    let file = File::new(b"a user=joe\nlocalhost user=joe\n");
    let with = |bootstrap: &str| located(&format!("-hostfile {} {bootstrap} a", file.name()), &[]);
    assert!(matches!(with(""), Ok(Location::Nodes(_))));
    let error = with("-bootstrap srun").unwrap_err();
    assert!(matches!(error, ClusterError::User { bootstrap: "srun", .. }), "{error}");
}

#[test]
fn plans_read_as_reviewed() {
    let file = File::new(b"a slots=2 max_slots=3\nb:1 user=joe\nc\n");
    let file = format!("-f {} -n 2 ./server x'y : -n 5 ./worker", file.name());
    let many =
        "-hosts n[01-09]:2 -radix 2 -n 17 -bind-to user:0+1,2 -iface ib0 -heartbeat 2.5 -bootstrap local a";
    let plans = [
        described("-n 3 ./a.out", &[]),
        described(&file, &[]),
        described("-n 6 -map-by node ./a.out", &SLURM),
        described("-hosts a,b -bootstrap-exec /opt/ssh -ppn 3 -rank-by node -n 8 a", &[]),
        described(many, &[]),
    ];
    insta::assert_snapshot!(plans.join("\n"));
}
