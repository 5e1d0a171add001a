//! Jobs of separate runs that share a name service and connect to each other.

use hydrant_tests::{Fleet, Job, Running};
use rustix::process::Signal;

use super::names::{CLIENT, Service};

/// Options of a run on one node, and of one on two.
const SHAPES: [&str; 2] = ["", "-n 1 -hosts n[1-2]:1 --bootstrap local"];
const CONNECTED: &str = "job-connect-response;rc=0;kvscopy=FALSE;";
const PARTED: &str = "job-disconnect-response;rc=0;kvscopy=FALSE;";
const NOT_CONNECTED: &str = "job-disconnect-response;rc=3;errmsg=not connected to that job;";
const NO_JOB: &str = "job-connect-response;rc=3;errmsg=no such job;";
const NO_SPACE: &str = "kvs-get-response;rc=3;errmsg=no such key-value space, or not connected to its job;";

/// Sends the requests that its input holds.
const SCRIPT: &str = "v2; while read -r request; do two \"$request\"; done; two 'finalize;' >/dev/null";

/// A run of one rank, which sends the requests that its input holds.
struct Run {
    running: Running,
    jobid: String,
}

impl Run {
    /// Starts a run whose rank has put its name under the key `from`.
    fn start(service: &Service, options: &str, name: &str) -> Run {
        Run::of(service.job(options, SCRIPT), name)
    }

    /// The same of a job of [`SCRIPT`].
    fn of(job: Job, name: &str) -> Run {
        let mut running = job.hold_input().start();
        let jobid = ask(&mut running, "job-getid;");
        let jobid = jobid.strip_prefix("job-getid-response;rc=0;jobid=").expect("a rank has a job");
        let jobid = jobid.trim_end_matches(';').to_owned();
        let mut run = Run { running, jobid };
        assert_eq!(run.ask(&format!("kvs-put;key=from;value={name};")), "kvs-put-response;rc=0;");
        assert_eq!(run.ask("kvs-fence;"), "kvs-fence-response;rc=0;");
        run
    }

    fn ask(&mut self, request: &str) -> String {
        ask(&mut self.running, request)
    }

    fn connect(&mut self, other: &str) -> String {
        self.ask(&format!("job-connect;jobid={other};"))
    }

    fn disconnect(&mut self, other: &str) -> String {
        self.ask(&format!("job-disconnect;jobid={other};"))
    }

    fn get(&mut self, other: &str, key: &str) -> String {
        self.ask(&format!("kvs-get;jobid={other};key={key};"))
    }

    fn end(mut self) {
        self.running.end_input();
        self.running.wait().code(0).quiet();
    }
}

fn ask(running: &mut Running, request: &str) -> String {
    running.send(format!("{request}\n").as_bytes()).expect("the rank reads its input");
    running.line()
}

fn found(value: &str) -> String {
    format!("kvs-get-response;rc=0;found=TRUE;value={value};")
}

#[test]
fn spaces_of_two_runs_are_readable_both_ways_until_they_disconnect() {
    for (one, two) in [(SHAPES[0], SHAPES[0]), (SHAPES[0], SHAPES[1]), (SHAPES[1], SHAPES[0])] {
        let service = Service::start("runs", "");
        let (mut first, mut second) = (Run::start(&service, one, "a"), Run::start(&service, two, "b"));
        let (a, b) = (first.jobid.clone(), second.jobid.clone());
        assert_eq!(first.get(&b, "from"), NO_SPACE);
        assert_eq!(first.disconnect(&b), NOT_CONNECTED);
        assert_eq!(first.connect(&b), CONNECTED);
        assert_eq!((first.get(&b, "from"), second.get(&a, "from")), (found("b"), found("a")));
        assert_eq!(first.get(&b, "none"), "kvs-get-response;rc=0;found=FALSE;");
        // A value of the greatest length, all of whose bytes are escaped.
        let long = ";;".repeat(1024);
        assert_eq!(second.ask(&format!("kvs-put;key=long;value={long};")), "kvs-put-response;rc=0;");
        assert_eq!(second.ask("kvs-fence;"), "kvs-fence-response;rc=0;");
        assert_eq!(first.get(&b, "long"), found(&long));
        // Connected jobs may connect again. Either of them disconnects.
        assert_eq!(second.connect(&a), CONNECTED);
        assert_eq!(second.disconnect(&a), PARTED);
        assert_eq!((first.get(&b, "from"), second.get(&a, "from")), (NO_SPACE.into(), NO_SPACE.into()));
        assert_eq!(first.disconnect(&b), NOT_CONNECTED);
        assert_eq!(second.connect(&a), CONNECTED);
        assert_eq!(first.get(&b, "from"), found("b"));
        first.end();
        second.end();
        assert_eq!(service.end(), "");
    }
}

// Fault: A run ends or is killed while a job of another run is connected to it
// Outcome: gets from it fail; its job id is unknown
// Guarantee: A job is disconnected when the connection of its run closes
#[test]
fn the_end_of_a_run_ends_its_connections() {
    for options in SHAPES {
        let service = Service::start("run-ends", "");
        let mut first = Run::start(&service, options, "a");
        for kill in [false, true] {
            let second = Run::start(&service, "", "b");
            let b = second.jobid.clone();
            assert_eq!((first.connect(&b), first.get(&b, "from")), (CONNECTED.into(), found("b")));
            if kill {
                second.running.signal(Signal::KILL);
                second.running.wait().signaled(Signal::KILL);
            } else {
                second.end();
            }
            assert!(first.get(&b, "from").starts_with("kvs-get-response;rc="), "a reply comes");
            assert_eq!((first.connect(&b), first.get(&b, "from")), (NO_JOB.into(), NO_SPACE.into()));
        }
        first.end();
        assert_eq!(service.end(), "");
    }
}

#[test]
fn connecting_joins_the_jobs_of_both_sides() {
    let service = Service::start("runs-join", "");
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|name| Run::start(&service, "", name));
    assert_eq!((a.connect(&b.jobid), c.connect(&d.jobid)), (CONNECTED.into(), CONNECTED.into()));
    assert_eq!((b.get(&d.jobid, "from"), d.get(&a.jobid, "from")), (NO_SPACE.into(), NO_SPACE.into()));
    assert_eq!(b.connect(&c.jobid), CONNECTED);
    assert_eq!((a.get(&d.jobid, "from"), d.get(&b.jobid, "from")), (found("d"), found("b")));
    for run in [a, b, c, d] {
        run.end();
    }
    service.end();
}

/// Also the first one, whose number the fleet has known from its start.
#[test]
fn jobs_of_a_fleet_are_connected_to_those_of_runs() {
    for hosts in ["-n 4", "-hosts n[1-2]:2 --bootstrap local"] {
        let service = Service::start("runs-fleet", "");
        let fleet = Fleet::new(&format!("{hosts} --name-server {}", service.path));
        let mut run = Run::start(&service, "", "a");
        for name in ["b", "c"] {
            let job = fleet.job("-n 1 bash -c").arg(format!("{CLIENT} {SCRIPT}"));
            let mut job = Run::of(job, name);
            assert_eq!(run.connect(&job.jobid), CONNECTED, "{hosts}");
            assert_eq!((run.get(&job.jobid, "from"), job.get(&run.jobid, "from")), (found(name), found("a")));
            job.end();
        }
        run.end();
        fleet.end();
        assert_eq!(service.end(), "");
    }
}

// Fault: A rank connects to a job id of no run, or of a run without the name server
// Outcome: the request is refused
// Guarantee: Only job ids are looked up
// Also: launch `runs::without_the_name_service_runs_are_apart`
#[test]
fn jobs_of_no_run_are_refused() {
    for options in SHAPES {
        let service = Service::start("runs-refused", "");
        let mut run = Run::start(&service, options, "a");
        // The name server calls connections without a job so.
        for jobid in ["run-1", "run-2", "nobodys", "kvs_1_0_00000000_nowhere"] {
            assert_eq!((run.connect(jobid), run.get(jobid, "from")), (NO_JOB.into(), NO_SPACE.into()));
        }
        run.end();
        assert_eq!(service.end(), "");
    }
}

/// A run without the name service knows no other run.
#[test]
fn without_the_name_service_runs_are_apart() {
    let service = Service::start("runs-apart", "");
    let run = Run::start(&service, "", "a");
    for options in SHAPES {
        let script = format!(
            "{CLIENT} v2; two 'job-connect;jobid={id};'; two 'kvs-get;jobid={id};key=from;'; two 'finalize;' >/dev/null",
            id = run.jobid
        );
        let outcome = Job::hydrant(options).args(["bash", "-c", &script]).run();
        outcome.code(0).quiet().stdout_is(&format!("{NO_JOB}\n{NO_SPACE}\n"));
    }
    run.end();
    service.end();
}
