//! Tests of whole command lines.

use std::path::PathBuf;

use hydrant_control::ExitCodeOf;
use hydrant_core::server::FenceMode;
use hydrant_placement::{
    Binding, Bootstrap, CpuBinding, HostSource, Hosts, Level, MapBy, MappingPolicy, MemoryBinding,
    NetworkTopology, Objects, PlacementOptions, RankBy,
};
use hydrant_run::plan::{
    Boards, Cluster, JoinSecret, JoinedHosts, Plugin, Preload, Pty, SharedMemory, Spare, StdinTarget,
    UniverseSize, UriTarget,
};

use super::*;
use crate::value::{job_attribute, node_attribute};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn action(words: Vec<OsString>) -> Result<Action, CliError> {
    let environment = [
        ("PATH", "/bin"),
        ("HOME", "/home/u"),
        ("PMI_RANK", "7"),
        ("PMI_DEBUG", "1"),
        ("PMIX_RANK", "7"),
        ("PRTE_LAUNCHED", "1"),
        ("MPI_LOCALNRANKS", "9"),
        ("OMPI_COMM_WORLD_RANK", "7"),
        ("OMPI_MCA_btl", "self"),
        ("I_MPI_PMI", "pmi2"),
        ("SLURM_JOB_ID", "12"),
    ];
    parse(words, || environment.map(|(name, value)| (name.into(), value.into())).to_vec())
}

fn planned(line: &str) -> Plan {
    match action(words(line)) {
        Ok(Action::Run(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    }
}

/// The first line of the error, and its hint.
fn refused(line: &str) -> String {
    match action(words(line)) {
        Err(error) => {
            let text = error.to_string();
            let hints = text.lines().skip(1).filter(|line| line.starts_with("hint: "));
            text.lines().take(1).chain(hints).collect::<Vec<_>>().join("\n  ")
        }
        other => panic!("{line}: {other:?}"),
    }
}

fn env(program: &Program) -> Vec<String> {
    program.env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
}

/// Temporary configuration file.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("hydrant-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_program_alone_is_one_rank() {
    let plan = planned("hydrant run ./a.out");
    assert_eq!(plan.size(), 1);
    assert_eq!(plan.programs[0].command, "./a.out");
    assert_eq!(plan.settings, RunSettings::default());
    assert_eq!(
        plan.options,
        Options {
            cluster: Cluster {
                placement: PlacementOptions { fill: vec![0], ..PlacementOptions::default() },
                ..Cluster::default()
            },
            ..Options::default()
        }
    );
}

#[test]
fn every_option_with_one_dash_and_with_two() {
    let one = "mpiexec -np 3 -genv A 1 -env B 2 -wdir /tmp -prepend-rank -prepend-timestamp -pty never -exit-report -json -timeout 60 -drain 1.5 -kill-grace 4 -get-stack-traces -usize 64 -outfile-pattern o.%r \
               -errfile-pattern e.%r -merge-stderr-to-stdout -copy-output -stdin all -bind-to user:0+2,1 -membind local -report-bindings -gpus-per-rank 2 -memory-alloc-kinds system,cuda -mem-pool 64M -shared-memory none -job-attr site=a=b;c -node-attr rack=3 -topology cart:4x4x2 -disable-auto-cleanup -exit-code survivors -verbose -pmi-port 127.0.0.1:7000 \
               -mpi-psets -sandbox=a.wasm -spare native -fence-warning 2.5 -fence lazy -lookup-wait 1.5 -name-server /run/u -report-uri + -record r -profile -hosts a:2,b -nodes 2 -ppn 3 -map-by slot -rank-by node -bootstrap srun -bootstrap-exec /s -bootstrap-timeout 90 -iface ib0 -radix 32 -preload-binary -preload-files ./a,b/c \
               -heartbeat 2.5 -dry-run -pmi1-version 1.1 -pset ocean -pset all -limit keys=9 -limit kvs-bytes=4096 -genvnone ./a.out";
    let plan = planned(one);
    let Program { ranks, command, args, wdir, .. } = &plan.programs[0];
    assert_eq!((*ranks, command.to_str(), args.len()), (3, Some("./a.out"), 0));
    assert_eq!(wdir.as_deref(), Some(Path::new("/tmp")));
    assert_eq!(env(&plan.programs[0]), ["A=1", "B=2"]);
    assert_eq!(plan.programs[0].psets, ["app://ocean", "app://all"]);
    assert_eq!(
        plan.settings,
        RunSettings {
            stdin: StdinTarget::All,
            bind: Binding {
                cpus: CpuBinding::User(vec![vec![0, 2], vec![1]]),
                map_by: None,
                memory: MemoryBinding::Local,
                report: true,
            },
            gpus_per_rank: Some(2),
            memory_alloc_kinds: Some("system,cuda".to_owned()),
            mem_pool: Some(64 << 20),
            shared_memory: SharedMemory::None,
            attributes: vec![job_attribute("site=a=b;c").unwrap(), node_attribute("rack=3").unwrap()],
            cleanup: false,
            drain: Duration::from_millis(1500),
            kill_grace: Some(Duration::from_secs(4)),
            verbose: true,
            mpi_psets: true,
            fence_warning: Duration::from_millis(2500),
            fence: FenceMode::Lazy,
            lookup_wait: Duration::from_millis(1500),
            pmi1_subversion: 1,
            merge_stderr: true,
        }
    );
    assert_eq!(
        plan.options,
        Options {
            on: None,
            fleet: None,
            prefix: Prefix { lines: LinePrefix::Rank, timestamps: true },
            pty: Pty::Never,
            universe_size: UniverseSize::Size(64),
            outfile_pattern: Some("o.%r".into()),
            errfile_pattern: Some("e.%r".into()),
            copy_output: true,
            topology: Some(NetworkTopology::Cartesian(vec![4, 4, 2])),
            exit_code_of: ExitCodeOf::Survivors,
            exit_report: true,
            json: Some(PathBuf::from("-")),
            report_uri: Some(UriTarget::Stderr),
            timeout: Some(Duration::from_secs(60)),
            stack_traces: true,
            pmi_port: Some("127.0.0.1:7000".parse().unwrap()),
            sandbox: Some(Plugin::File(PathBuf::from("a.wasm"))),
            spare: Some(Spare::Native),
            name_server: Some(PathBuf::from("/run/u")),
            record: Some(PathBuf::from("r")),
            profile: true,
            limits: vec![(hydrant_core::Limit::Keys, 9), (hydrant_core::Limit::KvsBytes, 4096)],
            offload: None,
            cluster: Cluster {
                placement: PlacementOptions {
                    nodes: Some(2),
                    hosts: HostSource::List(Hosts::parse("a:2,b").unwrap()),
                    policy: MappingPolicy { ppn: Some(3), map_by: MapBy::Slot, rank_by: Some(RankBy::Node) },
                    rank_map: Vec::new(),
                    fill: Vec::new(),
                    elastic: false,
                    bootstrap: Some(Bootstrap::Srun),
                    default_bootstrap: None,
                    program_hosts: Vec::new(),
                },
                bootstrap_exec: Some(PathBuf::from("/s")),
                bootstrap_args: Vec::new(),
                bootstrap_timeout: Duration::from_secs(90),
                remote_hydrant: None,
                iface: Some("ib0".to_owned()),
                radix: Some(32),
                preload: Some(Preload::Programs),
                preload_files: vec![PathBuf::from("a"), PathBuf::from("b/c")],
                heartbeat: Duration::from_millis(2500),
                dry_run: true,
                elastic: None,
                join: None,
                boards: Boards::default(),
            },
        }
    );
    assert_eq!(planned(&one.replace("mpiexec", "hydrant run").replace(" -", " --")), plan);
    let equals =
        one.replace("-np 3", "-n=3").replace("-genv A 1", "-genv=A=1").replace("-usize 64", "--usize=64");
    assert_eq!(planned(&equals), plan);
}

#[test]
fn the_name_server_has_hydras_spelling_and_the_former_one() {
    for option in ["--name-server", "-nameserver", "--universe", "-universe"] {
        let plan = planned(&format!("hydrant run {option} /run/names a"));
        assert_eq!(plan.options.name_server.as_deref(), Some(Path::new("/run/names")), "{option}");
        match action(words(&format!("hydrant serve --{} /run/names", option.trim_start_matches('-')))) {
            Ok(Action::NameServer(options)) => {
                assert_eq!(options.path.as_deref(), Some(Path::new("/run/names")), "{option}");
            }
            other => panic!("{option}: {other:?}"),
        }
    }
}

#[test]
fn the_program_name_mpiexec_implies_run() {
    for called in ["mpiexec", "/usr/bin/mpiexec", "mpirun", "mpiexec.hydrant"] {
        assert_eq!(planned(&format!("{called} -n 2 run x")).programs[0].command, "run", "{called}");
    }
    assert_eq!(planned("/opt/bin/hydrant run -n 2 probe").programs[0].command, "probe");
}

#[test]
fn arguments_after_a_program_belong_to_it() {
    let plan = planned("hydrant run -n 2 ./a.out -n 5 -l --help -- -genv : -n 3 ./b -configfile x");
    assert_eq!(plan.programs[0].args, ["-n", "5", "-l", "--help", "--", "-genv"]);
    assert_eq!(plan.programs[1].args, ["-configfile", "x"]);
    assert_eq!(plan.options.prefix, Prefix::default());
    assert_eq!(planned("hydrant run -n 2 -- -odd -x").programs[0].command, "-odd");
    assert_eq!(planned("hydrant run a ::").programs[0].args, ["::"]);
}

#[test]
fn programs_are_numbered_in_the_order_of_the_line() {
    let plan = planned("mpiexec -l -n 1 a 1 : -n 2 -wdir /x b : c : -np 4 d");
    let ranks: Vec<u32> = plan.programs.iter().map(|program| program.ranks).collect();
    assert_eq!(ranks, [1, 2, 1, 4]);
    assert_eq!(plan.size(), 8);
    let wdirs: Vec<bool> = plan.programs.iter().map(|program| program.wdir.is_some()).collect();
    assert_eq!(wdirs, [false, true, false, false]);
}

#[test]
fn a_colon_can_be_a_value() {
    let plan = planned("mpiexec -genvnone -env IFS : a : b");
    assert_eq!(env(&plan.programs[0]), ["IFS=:"]);
    assert_eq!(plan.programs.len(), 2);
}

#[test]
fn values_may_look_like_options() {
    let plan = planned("mpiexec -genvnone -env A -n -env B -- -wdir -x a");
    assert_eq!(env(&plan.programs[0]), ["A=-n", "B=--"]);
    assert_eq!(plan.programs[0].wdir.as_deref(), Some(Path::new("-x")));
}

#[test]
fn the_last_of_repeated_options_is_used() {
    let plan = planned("mpiexec -n 2 -usize 3 -n 4 -usize INFINITE -l -l a");
    assert_eq!((plan.size(), plan.options.universe_size), (4, UniverseSize::Infinite));
}

#[test]
fn host_options_have_the_names_of_other_launchers() {
    let placement = |line: &str| planned(line).options.cluster.placement;
    let list = |list: &str| HostSource::List(Hosts::parse(list).unwrap());
    for named in ["-hosts a:2,b", "-host a:2,b", "-H a:2,b", "--hosts=a:2,b", "-hosts c -hosts a:2,b"] {
        assert_eq!(placement(&format!("mpiexec {named} a")).hosts, list("a:2,b"), "{named}");
    }
    for named in ["-f h", "-hostfile h", "--machinefile h"] {
        assert_eq!(placement(&format!("mpiexec {named} a")).hosts, HostSource::File("h".into()), "{named}");
    }
    for named in ["-ppn 1", "-perhost 1", "-npernode 1", "-rr"] {
        assert_eq!(placement(&format!("mpiexec {named} a")).policy.ppn, Some(1), "{named}");
    }
    let map_by = |options: &str| placement(&format!("mpiexec --nodes 2 {options} a")).policy.map_by;
    assert_eq!(["", "-ppn 2", "-m block", "-map-by socket"].map(map_by), [MapBy::Block; 4]);
    assert_eq!(["-rr", "-map-by slot"].map(map_by), [MapBy::Slot; 2]);
    assert_eq!(["-map-by node", "-ntasks-per-node 2 -m cyclic"].map(map_by), [MapBy::Node; 2]);
    let bootstrap = |how: &str| {
        let line = ["mpiexec", "-launcher", how, "a"].map(OsString::from);
        let Ok(Action::Run(plan)) = action(line.to_vec()) else { panic!("{how}") };
        plan.options.cluster.placement.bootstrap.expect("it was said")
    };
    assert_eq!(
        [bootstrap("ssh"), bootstrap("slurm"), bootstrap("sge"), bootstrap("fork")],
        [Bootstrap::Ssh, Bootstrap::Srun, Bootstrap::Qrsh, Bootstrap::Local]
    );
    let exec = ["sh", "-c", "rsh {host} exec {args}"].map(OsString::from);
    assert_eq!(bootstrap("exec:sh -c 'rsh {host} exec {args}'"), Bootstrap::Exec(exec.to_vec()));
}

/// A folder has a secret for each host.
#[test]
fn hosts_that_join_are_those_of_the_run() {
    let join = |line: &str| planned(&format!("hydrant run --bootstrap join --secret-file / {line}"));
    let plan = join("--expect 4 --join-port 4200 -n 16 a");
    let secret = JoinSecret::Folder("/".into());
    let hosts = JoinedHosts { hosts: Some(4), port: Some(4200), secret, with_programs: false };
    assert_eq!(plan.options.cluster.join.as_ref(), Some(&hosts));
    let of_hosts = join("--expect 4 -genv A 1");
    assert!(of_hosts.options.cluster.join.is_some_and(|join| join.with_programs));
    let [program] = &of_hosts.programs[..] else { panic!("there is one") };
    assert_eq!((program.command.len(), env(program)), (0, vec!["A=1".to_owned()]), "the rest is the host's");
    assert!(join("-n 3 a : -n 2 b").options.cluster.join.is_some_and(|join| !join.with_programs));
    let refusals = [
        ("run --bootstrap join --expect 4 a", "--bootstrap join is of no use without --secret-file FILE"),
        (
            "run --bootstrap join --secret-file / a",
            "--bootstrap join is of no use without --expect N, or -n of each program",
        ),
        (
            "run --bootstrap join --secret-file / -n 2 a : b",
            "is of no use without --expect N, or -n of each program",
        ),
        ("run --expect 4 a", "--expect 4 is of no use without --bootstrap join"),
        ("run --bootstrap ssh --join-port 4 a", "--join-port 4 is of no use without --bootstrap join"),
        ("run --bootstrap join --secret-file / -hosts a,b a", "hosts that join say their names and slots"),
        ("run --bootstrap join --secret-file / -n 1 -host a a", "hosts that join say their names and slots"),
        ("run --bootstrap join --secret-file / -n 1 --dry-run a", "the hosts that join are not known before"),
        ("run --bootstrap join --secret-file /nowhere/x -n 1 a", "cannot read /nowhere/x"),
        ("run --bootstrap join --secret-file / --expect 2 : b", "missing program name"),
        ("offload --target x --expect 2 a", "does not apply to 'hydrant offload'"),
        ("reach --bootstrap join a", "hosts that join do so for a job only"),
        ("join head --secret-file /nowhere/x", "expected a name or an address, and a port"),
        ("join head:1 --secret-file /etc/hosts", "/etc/hosts"),
    ];
    for (line, why) in refusals {
        let refusal = refused(&format!("hydrant {line}"));
        assert!(refusal.contains(why), "{line}: {refusal}");
    }
}

#[test]
fn the_address_of_pmi_port_is_optional() {
    let port = |line: &str| {
        let plan = planned(line);
        assert_eq!(plan.programs[0].command, "a");
        plan.options.pmi_port.map(|address| address.to_string())
    };
    assert_eq!(port("hydrant run --pmi-port a").as_deref(), Some("127.0.0.1:0"));
    assert_eq!(port("hydrant run --pmi-port 0.0.0.0:9 a").as_deref(), Some("0.0.0.0:9"));
    assert_eq!(port("hydrant run --pmi-port=:9 -n 2 a").as_deref(), Some("127.0.0.1:9"));
    assert_eq!(port("hydrant run -pmi-port -n 2 a").as_deref(), Some("127.0.0.1:0"));
    assert_eq!(port("hydrant run a"), None);
}

#[test]
fn variables_of_other_launchers_are_not_inherited() {
    let all = [
        "PATH=/bin",
        "HOME=/home/u",
        "PMI_DEBUG=1",
        "OMPI_MCA_btl=self",
        "I_MPI_PMI=pmi2",
        "SLURM_JOB_ID=12",
    ];
    assert_eq!(env(&planned("mpiexec a").programs[0]), all);
    assert_eq!(env(&planned("mpiexec -genvnone -genvall a").programs[0]), all);
    assert_eq!(env(&planned("mpiexec -genvlist HOME -genvall a").programs[0]), all);
}

#[test]
fn lists_select_inherited_variables() {
    let of = |line: &str| env(&planned(line).programs[0]);
    assert_eq!(of("mpiexec -genvlist HOME,NONE,PMI_DEBUG,PMI_RANK a"), ["HOME=/home/u", "PMI_DEBUG=1"]);
    assert_eq!(of("mpiexec -genvlist HOME -genvlist PATH a"), ["PATH=/bin", "HOME=/home/u"]);
    assert_eq!(of("mpiexec -genvnone a"), [""; 0]);
    assert_eq!(of("mpiexec -genvlist HOME -genvnone a"), [""; 0]);
    assert_eq!(of("mpiexec -genvlist HOME -genvnone -genvlist PATH a"), ["PATH=/bin"]);
}

#[test]
fn options_of_a_program_select_what_it_inherits() {
    let plan = planned("mpiexec -genv G 1 -genvlist HOME -envnone a : -envlist PATH b : c : -envall d");
    let envs: Vec<Vec<String>> = plan.programs.iter().map(env).collect();
    assert_eq!(envs[0], ["G=1"]);
    assert_eq!(envs[1], ["PATH=/bin", "G=1"]);
    assert_eq!(envs[2], ["HOME=/home/u", "G=1"]);
    assert_eq!(envs[3].len(), 7);
}

#[test]
fn assignments_override_inherited_variables_and_those_of_the_job() {
    let line = "mpiexec -genvlist HOME -genv HOME /g -genv A 1 -genv A 2 -env A 3 -env B x=y -env PMIX_MCA_a 1 a : b";
    let plan = planned(line);
    assert_eq!(env(&plan.programs[0]), ["HOME=/g", "A=3", "B=x=y", "PMIX_MCA_a=1"]);
    assert_eq!(env(&plan.programs[1]), ["HOME=/g", "A=2"]);
}

#[test]
fn bytes_that_are_not_unicode_reach_the_program() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"x\xff=\xfe".to_vec());
    let mut line = words("mpiexec -genvnone -env");
    line.extend([odd.clone(), odd.clone(), odd.clone()]);
    let Ok(Action::Run(plan)) = action(line) else { panic!("refused") };
    assert_eq!(plan.programs[0].env[0].0.len() + plan.programs[0].env[0].1.len(), 3);
    assert_eq!((&plan.programs[0].command, &plan.programs[0].args[0]), (&odd, &odd));
}

#[test]
fn a_configuration_file_has_the_programs() {
    let file = File::new("good", "# two programs\n-usize 9 -n 2 ./a 'x y'\n\n-n 3 -env A '1 2' ./b # last\n");
    let plan = planned(&format!("mpiexec -genvnone -l -configfile {}", file.0.display()));
    assert_eq!(plan.programs[0].args, ["x y"]);
    assert_eq!((plan.size(), env(&plan.programs[1])), (5, vec!["A=1 2".to_owned()]));
    assert_eq!(
        (plan.options.prefix.lines, plan.options.universe_size),
        (LinePrefix::Rank, UniverseSize::Size(9))
    );
}

#[test]
fn help_and_version_need_no_program() {
    let printed = |line: &str| match action(words(line)) {
        Ok(Action::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    for line in ["hydrant run --help", "hydrant run -help", "hydrant run -n 2 -help", "hydrant help run"] {
        assert!(printed(line).contains("Limits"), "{line}");
    }
    assert!(printed("mpiexec -help").contains("mpiexec -n 4 ./a.out"));
    assert!(!printed("mpiexec --help").contains("hydrant run"), "help names the command as it was called");
    assert!(printed("mpiexec -h").len() < printed("mpiexec --help").len());
    let short = format!("hydrant {}\n", env!("CARGO_PKG_VERSION"));
    for line in ["hydrant -V", "mpiexec -V"] {
        assert_eq!(printed(line), short, "{line}");
    }
    for line in ["hydrant --version", "hydrant --info", "mpiexec -version", "mpiexec -info"] {
        let text = printed(line);
        assert!(text.starts_with(&short) && text.contains("PMI 1.1, 1.2 and 2.0"), "{line}: {text}");
    }
}

#[test]
fn errors_have_a_location_a_cause_and_a_hint() {
    let lines = [
        "mpiexec",
        "hydrant run",
        "hydrant run -n 4",
        "hydrant run -n",
        "hydrant run -n x a",
        "hydrant run -n 0 a",
        "hydrant run -n 2 a : -n -1 b",
        "hydrant run -n4x a",
        "hydrant run --genvlst A a",
        "hydrant run -zzz a",
        "hydrant run -l=1 a",
        "mpiexec -rankmap 0,x -n 2 a",
        "mpiexec -hosts a -n 2 -f hosts a",
        "mpiexec -hosts a, -n 2 a",
        "mpiexec -hosts n[1-3:2 -n 2 a",
        "mpiexec -hosts a:0 -n 2 a",
        "mpiexec -host -oProxyCommand=x a",
        "mpiexec -ppn 0 a",
        "mpiexec --fence eager a",
        "mpiexec --spare twice a",
        "mpiexec -rr -map-by node a",
        "mpiexec -rr -ppn 2 a",
        "mpiexec -rank-by core a",
        "mpiexec -bootstrap rsh a",
        "mpiexec -bootstrap exec:rsh a",
        "mpiexec -launcher exec:{args} a",
        "mpiexec -launcher local -launcher-exec /s a",
        "mpiexec -radix 1 a",
        "mpiexec -radix 1023 a",
        "mpiexec -heartbeat 0 a",
        "mpiexec -bootstrap-timeout 0 a",
        "mpiexec -iface a/b a",
        "mpiexec -map-by ring a",
        "mpiexec -bind-to socket -cpus-per-rank 2 a",
        "mpiexec -membind nexttouch a",
        "mpiexec -n 2 a : -configfile b c",
        "mpiexec -output o.%j a",
        "mpiexec --mca btl",
        "mpiexec -N 2 a",
        "mpiexec -N2 a",
        "mpiexec -p debug a",
        "mpiexec -f -n 2 a",
        "mpiexec --mca btl -n 2 a",
        "mpiexec -genvlist A=1 a",
        "mpiexec -x= a",
        "mpiexec -hosts -l@b a",
        "mpiexec -n ./a",
        "mpiexec -n 2",
        "mpiexec -ppn ./a",
        "mpiexec -wdir ./a",
        "mpiexec a : -np ./b",
        "mpiexec a : -wdir ./b",
        "mpiexec --cpu-bind=map_cpu:0x1 a",
        "mpiexec -prepend-pattern %p a",
        "hydrant --bogus ./a",
        "mpiexec : a",
        "mpiexec a :",
        "mpiexec a : -n 2",
        "mpiexec a : : b",
        "mpiexec -env A",
        "mpiexec -genv PMI_RANK 3 a",
        "mpiexec -bind-to gpu a",
        "mpiexec -outfile-pattern o.%d a",
        "mpiexec -limit replies-owed=9 a",
        "mpiexec -limit keys=many a",
        "mpiexec -fence-warning soon a",
        "mpiexec -usize 0 a",
        "mpiexec --pmi-port=nowhere a",
        "mpiexec --pmi-port=nowhere -n 2 a",
        "mpiexec -n 4294967295 a : b",
        "mpiexec -pmi1-version 2 a",
        "mpiexec -pset x a : b : -n 2 -pset y -pset x c",
        "mpiexec -configfile /dev/null/job",
        "mpiexec -configfile job a",
        "mpiexec -n 2 -configfile job",
        "mpiexec -configfile job : b",
        "mpiexec -name-server= a",
        "hydrant run -host a --verbos b",
        "hydrant replai x",
        "mpiexec -wdir= a",
        "mpiexec -sandbox a.wasm b",
        "hydrant run --json a.json -n 2 b",
        "mpiexec -pset mpi://x a",
        "hydrant offload --target board:pmi a",
        "hydrant replay --rank x job.rec",
        "hydrant serve --size 4 --map 3,2",
        "hydrant serve --size 4 --map 2,2 --limit commit-bytes=4096",
        "hydrant serve --manage --jobs 2",
        "hydrant serve --size 4 --heartbeat 5",
        "hydrant serve --size 4 --record /dev/null/job",
        "hydrant status",
        "hydrant kill -9 77",
        "hydrant serve --manage 127.0.0.1:0",
        "hydrant serve --manage 127.0.0.1:0 --bogus",
        "hydrant status --watch 2 77",
        "hydrant replace --sandbox a.wasm 77",
        "hydrant probe --keys many",
        "hydrant serve --limit keys=9",
        "hydrant rnu",
        "hydrant hostname",
        "hydrant version",
        "hydrant help nothing",
        "hydrant replace 77",
        "hydrant replace --sandbox --built-in 77",
    ];
    let texts: Vec<String> = lines.iter().map(|line| format!("{line}\n  {}", refused(line))).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn options_of_other_launchers_are_read() {
    let plan = planned(
        "mpirun -np4 --oversubscribe --wd=/tmp -x HOME -x A=1 --mca btl tcp,self --tag-output --allow-run-as-root \
         --output-filename out -rmk slurm ./a.out -np4 : -np 1 -l ./b",
    );
    assert_eq!((plan.programs[0].ranks, plan.programs[0].wdir.as_deref()), (4, Some(Path::new("/tmp"))));
    assert_eq!(plan.programs[0].args, ["-np4"]);
    for wanted in ["HOME=/home/u", "A=1", "OMPI_MCA_btl=tcp,self"] {
        assert!(env(&plan.programs[0]).iter().any(|variable| variable == wanted), "{wanted}");
    }
    assert_eq!(plan.options.prefix.lines, LinePrefix::Rank);
    assert_eq!(plan.options.outfile_pattern.as_deref(), Some(OsStr::new("out/%g/rank.%r/stdout")));
    insta::assert_snapshot!(plan.notes.join("\n"));
    let plan =
        planned("hydrant run --ntasks=2 --nodes 1 --label --export=NONE --chdir / --mpi=pmi2 -H a,b ./a.out");
    assert_eq!((plan.size(), env(&plan.programs[0]).len()), (2, 0));
    assert_eq!(plan.options.cluster.placement.nodes, Some(1));
    assert!(planned("mpirun -genv A 1 ./a.out").notes.is_empty());
}

#[test]
fn fault_tolerance_of_open_mpi_leaves_han_out() {
    let collectives = |line: &str, inherited: &[(&str, &str)]| {
        let inherited = inherited.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let Ok(Action::Run(plan)) = parse(words(line), || inherited) else { panic!("{line}") };
        let found = plan.programs[0].env.iter().find(|(name, _)| name == "OMPI_MCA_coll");
        found.map(|(_, value)| value.to_str().expect("it is text").to_owned())
    };
    let without = Some("^han,hcoll,portals4".to_owned());
    assert_eq!(collectives("mpirun --with-ft ulfm a", &[]), without);
    assert_eq!(collectives("mpirun -disable-auto-cleanup -genv OMPI_MCA_mpi_ft_enable 1 a", &[]), without);
    assert_eq!(collectives("mpirun a", &[]), None);
    assert_eq!(collectives("mpirun --with-ft no a", &[]), None);
    let tuned = Some("tuned".to_owned());
    assert_eq!(collectives("mpirun --mca coll tuned --with-ft ulfm a", &[]), tuned);
    assert_eq!(collectives("mpirun --with-ft ulfm -genv OMPI_MCA_coll tuned a", &[]), tuned);
    assert_eq!(collectives("mpirun --with-ft ulfm a", &[("OMPI_MCA_coll", "tuned")]), tuned);
}

#[test]
fn a_job_needs_no_command() {
    assert_eq!(planned("hydrant -n 2 a.out").size(), 2);
    assert_eq!(planned("hydrant ./a.out -h").programs[0].args, ["-h"]);
    assert!(matches!(action(words("hydrant --version")), Ok(Action::Print(_))));
    assert!(matches!(action(words("hydrant -h")), Ok(Action::Print(_))));
}

#[test]
fn variables_of_mpich_are_honored() {
    let with = |line: &str| {
        let environment = [("MPIEXEC_PREFIX_DEFAULT", "1"), ("HYDRA_HOST_FILE", "hosts")];
        let environment = environment.map(|(name, value)| (name.into(), value.into())).to_vec();
        match parse(words(line), || environment) {
            Ok(Action::Run(plan)) => (plan.options.prefix.lines, plan.options.cluster.placement.hosts),
            other => panic!("{line}: {other:?}"),
        }
    };
    assert_eq!(
        with("mpiexec a"),
        (LinePrefix::Mpiexec, HostSource::Variable("HYDRA_HOST_FILE", "hosts".into()))
    );
    let (lines, hosts) = with("mpiexec -l -f own a");
    assert_eq!((lines, hosts), (LinePrefix::Rank, HostSource::File("own".into())));
}

#[test]
fn variables_of_launchers_name_hosts_and_agent() {
    let with = |line: &str, variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        match parse(words(line), || environment) {
            Ok(Action::Run(plan)) => plan.options.cluster,
            other => panic!("{line}: {other:?}"),
        }
    };
    let agent = |line: &str, variables: &[(&str, &str)]| {
        let Cluster { placement, bootstrap_exec, bootstrap_args, .. } = with(line, variables);
        let exec = |bootstrap: Bootstrap| match bootstrap {
            Bootstrap::Exec(words) => words.join(OsStr::new(" ")).into_string().unwrap(),
            other => other.name().to_owned(),
        };
        let program = bootstrap_exec.map(|program| program.display().to_string());
        let args = bootstrap_args.join(OsStr::new(" ")).into_string().unwrap();
        [placement.default_bootstrap.map(exec), program, Some(args).filter(|args| !args.is_empty())]
            .map(Option::unwrap_or_default)
    };
    for variable in variables::HOST_FILES {
        let of_file =
            |line: &str| with(line, &[(variable, "v"), ("SLURM_JOB_NODELIST", "n1")]).placement.hosts;
        assert_eq!(of_file("mpiexec a"), HostSource::Variable(variable, "v".into()));
        assert_eq!(of_file("mpiexec -f own a"), HostSource::File("own".into()));
        assert_eq!(of_file("mpiexec -host x a : -host y b"), HostSource::Allocation);
        assert_eq!(of_file("mpiexec -host x a : b"), HostSource::Variable(variable, "v".into()));
    }
    // mpi-operator: kubexec.sh in the first versions, ssh in later ones.
    let kubexec = "/etc/mpi/kubexec.sh {host} exec {args}";
    for variables in [
        &[("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh")][..],
        &[("HYDRA_LAUNCHER_EXEC", "/etc/mpi/kubexec.sh")],
        &[("I_MPI_HYDRA_BOOTSTRAP", "rsh"), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh")],
    ] {
        assert_eq!(agent("mpiexec a", variables), [kubexec, "", ""], "{variables:?}");
        assert_eq!(agent("mpiexec -bootstrap ssh a", variables), ["", "", ""], "{variables:?}");
        assert_eq!(agent("mpiexec -bootstrap-exec /s a", variables), ["", "/s", ""], "{variables:?}");
    }
    for variable in
        ["OMPI_MCA_plm_rsh_args", "HYDRA_LAUNCH_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"]
    {
        let variables = [(variable, "-o ConnectionAttempts=10")];
        assert_eq!(agent("mpiexec a", &variables), ["", "", "-o ConnectionAttempts=10"]);
        // They are those of ssh.
        let of_slurm = [variables[0], ("SLURM_JOB_NODELIST", "n1")];
        assert_eq!(agent("mpiexec a", &of_slurm), ["", "", ""]);
    }
    let own_ssh = [("PRTE_MCA_plm_ssh_agent", "/opt/ssh -q : rsh"), ("PRTE_MCA_plm_ssh_args", "-4")];
    assert_eq!(agent("mpiexec a", &own_ssh), ["ssh", "/opt/ssh", "-q -4"]);
    let of_slurm = [("HYDRA_LAUNCHER", "slurm"), ("HYDRA_LAUNCHER_EXEC", "/s/srun")];
    assert_eq!(agent("mpiexec a", &of_slurm), ["srun", "/s/srun", ""]);
    // A launcher that hydrant does not have is ignored.
    assert_eq!(agent("mpiexec a", &[("HYDRA_LAUNCHER", "persist")]), ["", "", ""]);
    let open = parse(words("mpiexec a"), || vec![("HYDRA_LAUNCHER_EXEC".into(), "'x".into())]);
    assert!(open.unwrap_err().to_string().contains("variable HYDRA_LAUNCHER_EXEC"));
}

#[test]
fn each_program_has_hosts_of_its_own() {
    let hosts = |line: &str| {
        let placement = planned(line).options.cluster.placement;
        let own = placement.program_hosts.iter();
        let own: Vec<String> = own
            .map(|(program, hosts)| {
                let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                format!("{program}:{}", names.join(","))
            })
            .collect();
        let of_job = match placement.hosts {
            HostSource::List(hosts) => {
                hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>().join(",")
            }
            other => format!("{other:?}"),
        };
        format!("{of_job} {}", own.join(" "))
    };
    let file = File::new("host", "-n 1 -host a x :\n: -n 1 -host b y :\n");
    for line in [
        "mpiexec -n 1 -host a x : -n 1 -host b y",
        "mpiexec -n 1 -H a x : -n 1 --host=b y",
        &format!("mpiexec -configfile {}", file.0.display()),
        &format!("mpirun --app {}", file.0.display()),
    ] {
        assert_eq!(hosts(line), "Allocation 0:a 1:b", "{line}");
    }
    assert_eq!(hosts("mpiexec -hosts a,b -n 1 -host b x : y"), "a,b 0:b");
    assert_eq!(hosts("mpiexec -hosts a,b x : y -host z"), "a,b ");
    assert_eq!(hosts("mpiexec x : -hosts a,b y"), "a,b ");
    assert_eq!(planned("mpiexec -path /a:/b x : y").programs[0].path.as_deref(), Some(OsStr::new("/a:/b")));
}

#[test]
fn job_options_of_programs_agree() {
    let lines = [
        "mpiexec -hosts a x : -hosts b y",
        "mpiexec -timeout 5 x : y : -l -timeout 6 z",
        "mpiexec x : -l y : -prepend-pattern %r z",
        "mpiexec -genv A 1 x : -genv A 2 y",
        "mpiexec -genvnone x : -genvall y",
        "mpiexec -f a x : -hostfile b y",
        "mpiexec -bind-to core x : -bind-to none y",
        "mpiexec -host a x : -host b -rankmap 0 y",
        "mpiexec -hosts a,b -nodes 1 x : -host b y",
        "mpiexec -soft 1:4 x",
    ];
    insta::assert_snapshot!(lines.map(refused).join("\n"));
    let plan = planned("mpiexec -l -timeout 5 -timeout 6 -genv A 1 x : -l -timeout 5 -timeout 6 -genv B 1 y");
    assert_eq!(plan.options.timeout, Some(Duration::from_secs(6)));
    assert!(["A=1", "B=1"].iter().all(|set| env(&plan.programs[0]).contains(&(*set).to_owned())));
}

#[test]
fn a_configuration_file_may_have_a_byte_order_mark_and_colons() {
    let file = File::new("mark", "\u{feff}-n 2 a 1 :\n:\n# more\n-n 3 b \\\n  2 : -n 1 c :\n");
    let plan = planned(&format!("mpiexec -configfile {}", file.0.display()));
    let programs = plan.programs.iter();
    let programs: Vec<_> = programs.map(|program| (program.ranks, program.args.len())).collect();
    assert_eq!(programs, [(2, 1), (3, 1), (1, 0)]);
    let file = File::new("colons", ":\n");
    assert!(refused(&format!("mpiexec -configfile {}", file.0.display())).starts_with("no program in"));
}

#[test]
fn errors_in_a_file_name_its_line() {
    let lines = |name: &str, text: &str| {
        let file = File::new(name, text);
        refused(&format!("mpiexec -configfile {}", file.0.display()))
            .replace(&file.0.display().to_string(), "FILE")
    };
    insta::assert_snapshot!(
        [
            lines("value", "-n 2 a\n# b\n-n x b"),
            lines("none", "-n 2 a\n-n 3\n"),
            lines("nested", "-configfile x"),
            lines("empty", "# nothing\n"),
            lines("quote", "a\n\nb 'c"),
            lines("wants", "a\n-env A"),
        ]
        .join("\n")
    );
}

#[test]
fn options_hidden_by_name_exist() {
    let run = FirstArgs::augment_args(Command::new("run"));
    let count = |is_named: fn(&str) -> bool| {
        run.get_arguments().filter(|option| is_named(option.get_id().as_str())).count()
    };
    assert_eq!(count(offload::is_not_offloadable), offload::NOT_OFFLOADABLE.len());
    assert_eq!(count(fleet::is_of_up), fleet::OF_UP.len());
}

#[test]
fn help_reads_as_reviewed() {
    let fixed = |command: Command| command.term_width(100).render_long_help().to_string();
    insta::assert_snapshot!("help_hydrant", fixed(commands::hydrant()));
    let mut all = commands::hydrant();
    all.build();
    let serve = all.find_subcommand("serve").expect("it is one of them").clone();
    insta::assert_snapshot!("help_serve", fixed(serve));
    let replay = all.find_subcommand("replay").expect("it is one of them").clone();
    insta::assert_snapshot!("help_replay", fixed(replay));
    insta::assert_snapshot!("help_run", fixed(commands::run("run", "hydrant run")));
    insta::assert_snapshot!(
        "help_run_short",
        commands::run("run", "mpiexec").term_width(100).render_help().to_string()
    );
}

#[test]
fn own_options_are_not_listed_as_foreign() {
    let command = commands::run("run", "hydrant run");
    for arg in command.get_arguments() {
        let short = arg.get_short().map(String::from);
        for name in short.iter().map(String::as_str).chain(arg.get_long()) {
            assert!(foreign::meaning(name).is_none(), "{name}");
        }
    }
}

#[test]
fn the_doctor_takes_hosts_as_run_does() {
    let question = |line: &str| match action(words(line)) {
        Ok(Action::Doctor(question)) => question,
        other => panic!("{line}: {other:?}"),
    };
    for line in
        ["hydrant doctor -hosts a,b ./x", "hydrant doctor --hosts=a,b ./x", "hydrant doctor -H a,b ./x"]
    {
        let asked = question(line);
        assert!(matches!(&asked.hosts, HostSource::List(hosts) if hosts.len() == 2), "{line}");
        assert_eq!(asked.program.as_deref(), Some(OsStr::new("./x")), "{line}");
    }
    assert_eq!(question("hydrant doctor").hosts, HostSource::Allocation);
    let environment = vec![("I_MPI_HYDRA_HOST_FILE".into(), "/etc/mpi/hostfile".into())];
    match parse(words("hydrant doctor"), || environment) {
        Ok(Action::Doctor(question)) => {
            let file = HostSource::Variable("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile".into());
            assert_eq!(question.hosts, file);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bindings_of_hydra_open_mpi_and_srun() {
    let bind = |line: &str| planned(&format!("mpiexec {line} a")).settings.bind;
    let objects = |level, count| CpuBinding::Objects(Objects { level, count });
    assert_eq!(bind("-bind-to core:2").cpus, objects(Level::Core, 2));
    assert_eq!(bind("--cpus-per-task 4").cpus, objects(Level::Core, 4));
    assert_eq!(bind("-bind-to hwthread -cpus-per-rank 4").cpus, objects(Level::Hwthread, 4));
    assert_eq!(bind("-bind-to none -map-by slot:PE=4").cpus, CpuBinding::None);
    let by_socket = bind("--map-by socket:PE=2");
    assert_eq!(
        (by_socket.cpus, by_socket.map_by),
        (objects(Level::Core, 2), Some(Objects::one(Level::Socket)))
    );
    assert_eq!(bind("-map-by numa").cpus, objects(Level::Numa, 1));
    assert_eq!(bind("--cpu-bind=verbose,sockets").cpus, objects(Level::Socket, 1));
    assert_eq!(bind("--cpu-bind map_cpu:1,3").cpus, CpuBinding::User(vec![vec![1], vec![3]]));
    assert_eq!(planned("mpiexec -gpus-per-proc 2 a").settings.gpus_per_rank, Some(2));
    assert_eq!(planned("mpiexec -gpus-per-proc AUTO a").settings.gpus_per_rank, None);
    let rank_map = planned("mpiexec -hosts a,b -rankmap 1,0 a").options.cluster.placement.rank_map;
    assert_eq!(rank_map, [1, 0]);
    assert_eq!(planned("mpiexec --map-by ppr:2:node a").options.cluster.placement.policy.ppn, Some(2));
    let seconds =
        |time: &str| planned(&format!("mpiexec -t {time} a")).options.timeout.map(|limit| limit.as_secs());
    let limits = ["2", "0:30", "1:0:0", "1-1", "1-1:1:1"].map(seconds);
    assert_eq!(limits, [120, 30, 3600, 90_000, 90_061].map(Some));
}
