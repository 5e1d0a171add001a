//! Text and JSON of `ps` and `status`.

use hydrant_run::json;
use hydrant_status::record::{Program, Text};

use super::*;
use crate::observe::{PsDocument, StatusDocument};

fn run() -> Run {
    Run {
        pid: 4711,
        version: "0.1.0".to_owned(),
        host: "login".to_owned(),
        elapsed_ms: 245_000,
        hosts: 2,
        jobs: 1,
        ranks: 4,
        running: 3,
        program: Text(b"./a\xff".to_vec()),
        bootstrap: "ssh".to_owned(),
        address: None,
        fleet: None,
    }
}

fn rank(rank: u32, state: State, waits_for: Option<Wait>) -> Rank {
    let pid = (state != State::NotStarted).then_some(100 + rank);
    let (exit_code, signal) = match state {
        State::Exited => (Some(3), None),
        State::Killed => (None, Some(11)),
        _ => (None, None),
    };
    Rank { rank, host: Some(format!("n{}", rank % 2)), pid, program: 0, state, exit_code, signal, waits_for }
}

fn fence(since_ms: u64) -> Option<Wait> {
    Some(Wait::Fence { number: 2, since_ms })
}

fn jobs() -> Vec<JobWithRanks> {
    let job = |number, ordinal, spawned_by: Option<&str>, ranks: Vec<Rank>| JobWithRanks {
        job: Job {
            number,
            ordinal,
            name: format!("kvs_{number}"),
            spawned_by: spawned_by.map(str::to_owned),
            ending: false,
            ranks: ranks.len() as u32,
            programs: vec![Program { command: Text::from("./a.out"), ranks: ranks.len() as u32 }],
        },
        late: late(&ranks),
        rank_states: ranks,
    };
    let data = Some(Wait::Data { job: "kvs_0".to_owned(), rank: 9 });
    vec![
        job(
            0,
            0,
            None,
            vec![
                rank(0, State::Initialized, fence(1200)),
                rank(1, State::Initialized, fence(12_300)),
                rank(2, State::Initialized, data),
                rank(3, State::Exited, None),
            ],
        ),
        job(
            1,
            4,
            Some("kvs_0"),
            vec![
                rank(0, State::Initialized, Some(Wait::Name("ocean\n".into()))),
                rank(1, State::Started, None),
                rank(2, State::NotStarted, None),
                rank(3, State::Killed, None),
            ],
        ),
    ]
}

#[test]
fn tables_of_jobs_and_ranks() {
    assert_eq!(runs(&[]), "no running jobs\n");
    insta::assert_snapshot!(runs(&[(4711, Some(run())), (5, None)]) + "\n" + &status(&run(), &jobs()));
}

#[test]
fn tables_of_a_server() {
    let run = Run {
        program: "hydrant serve --size".into(),
        bootstrap: "none".to_owned(),
        address: Some("10.0.0.1:4000".to_owned()),
        hosts: 1,
        running: 1,
        ranks: 2,
        ..run()
    };
    let from = |number, state, host: Option<&str>, wait| Rank {
        host: host.map(str::to_owned),
        pid: None,
        ..rank(number, state, wait)
    };
    let ranks = vec![
        from(0, State::Initialized, Some("10.0.0.7"), fence(1200)),
        from(1, State::NotConnected, None, None),
    ];
    let mut job = jobs().remove(0);
    (job.job.programs, job.job.ranks) = (Vec::new(), 2);
    (job.late, job.rank_states) = (late(&ranks), ranks);
    insta::assert_snapshot!(runs(&[(4711, Some(run.clone()))]) + "\n" + &status(&run, &[job]));
}

#[test]
fn json_of_jobs_and_ranks() {
    let ps = json::document("ps", &PsDocument { runs: vec![run()], silent: vec![5] });
    insta::assert_snapshot!(ps + &json::document("status", &StatusDocument { run: run(), jobs: jobs() }));
}

#[test]
fn ranks_are_late_for_others_only() {
    let started = || rank(0, State::Started, None);
    assert!(late(&[started(), started()]).is_empty());
    assert!(late(&[rank(0, State::Initialized, None), rank(1, State::Initialized, None)]).is_empty());
    assert_eq!(late(&[rank(0, State::Initialized, None), rank(1, State::Started, None)]), [1]);
    assert!(late(&[rank(0, State::Initialized, fence(1)), rank(1, State::Running, None)]).is_empty());
}
