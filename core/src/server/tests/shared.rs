//! Tests of readers that share the memory of the log.

use super::dynamic::two_jobs;
use super::*;
use crate::wire::log::LogView;

/// Looks up a key in a job's space through the shared memory.
fn read(host: &Host, job: JobId, key: &str) -> Option<String> {
    let (used, _) = host.server.kvs.log().as_bytes().as_chunks();
    // A view has the whole memory of the log. Here its unused part is empty.
    let mut words: Vec<_> = used.iter().map(|&word| AtomicU32::new(u32::from_ne_bytes(word))).collect();
    words.resize_with(host.server.limits.kvs_bytes as usize / 4, || AtomicU32::new(0));
    let view = LogView::new(&words, host.index, SEED).unwrap();
    let mut buf = [0; 64];
    let len = view.get(host.server.kvs_space(job)?, key.as_bytes(), &mut buf)?;
    Some(String::from_utf8(buf[..len as usize].to_vec()).unwrap())
}

#[test]
fn each_jobs_space_holds_what_its_ranks_put() {
    let mut host = two_jobs(0);
    let (first, second) = (JobId(0), JobId(1));
    for (conn, message) in [
        (0, "kvs-put;key=k;value=old;"),
        (2, "kvs-put;key=k;value=of the;; other;"),
        (1, "kvs-put;key=k;value=new;"),
        (0, "kvs-put;key=empty;value=;"),
        (0, "info-putnodeattr;key=attribute;value=x;"),
    ] {
        host.asks(conn, &format!("cmd={message}"));
    }
    // A wanted key has a record without a value.
    host.asks(0, "cmd=info-getnodeattr;key=waited;wait=TRUE;");
    assert_eq!(read(&host, first, "k").as_deref(), Some("new"));
    assert_eq!(read(&host, second, "k").as_deref(), Some("of the; other"));
    assert_eq!(read(&host, first, "empty").as_deref(), Some(""));
    for missing in ["attribute", "waited", "PMI_process_mapping", "kk", ""] {
        assert_eq!(read(&host, first, missing), None, "{missing}");
    }
    assert_eq!(read(&host, second, "empty"), None);
}

#[test]
fn a_space_goes_with_its_job() {
    let mut host = two_jobs(0);
    let spaces = [0, 1, 2].map(|job| host.server.kvs_space(JobId(job)));
    assert!(spaces[0].is_some() && spaces[0] != spaces[1] && spaces[2].is_none(), "{spaces:?}");
    for job in [0, 1] {
        host.asks(2 * job, "cmd=kvs-put;key=k;value=v;");
        host.tell(Input::DeregisterJob { job: JobId(job) });
        assert_eq!(host.server.kvs_space(JobId(job)), None);
    }
    // The log is empty after the last job, so the next job finds no keys.
    assert!(host.index.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
    host.job(spec(1));
    assert_eq!(read(&host, JobId(0), "k"), None);
}

#[test]
fn readers_find_nothing_in_the_log_of_a_retired_server() {
    let mut host = two_jobs(0);
    host.asks(0, "cmd=kvs-put;key=k;value=v;");
    assert_eq!(read(&host, JobId(0), "k").as_deref(), Some("v"));
    host.server.retire();
    assert!(host.index.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
}
