//! Tests of ranks that introduce themselves again over another connection.

use super::*;

/// Job of two ranks, whose rank 1 has come over the port as connection 1.
fn joined() -> Host {
    let mut host = Host::with_limits(SMALL);
    host.job(spec(2));
    host.open(0, Some(0));
    host.join_v2(0, "");
    host.open(1, None);
    host.join_v2(1, "pmirank=1;");
    host
}

/// Sends PMI-2's handshake of rank 1 over connection 2. Returns the reply.
fn again(host: &mut Host, verified: bool) -> String {
    host.open(2, None);
    if verified {
        host.tell(Input::Verified { conn: ConnId(2) });
    }
    host.says(2, "cmd=init pmi_version=2 pmi_subversion=0\n");
    host.replies.clear();
    host.asks(2, "cmd=fullinit;pmirank=1;");
    host.replies.pop_back().expect("it has a reply").1
}

fn close(conn: u32, why: Closing) -> String {
    format!("{:?}", Output::Close { conn: ConnId(conn), why })
}

#[test]
fn a_verified_client_replaces_an_idle_connection() {
    let mut host = joined();
    assert!(again(&mut host, true).contains("rc=0;"));
    assert_eq!(host.events, [close(1, Closing::Replaced)]);
    host.events.clear();
    // What the old connection still sends is dropped.
    host.asks(1, "cmd=kvs-fence;");
    host.tell(Input::Closed { conn: ConnId(1) });
    host.now = Time(5000);
    host.tell(Input::Timeout);
    host.asks(0, "cmd=kvs-fence;");
    host.silent();
    host.asks(2, "cmd=kvs-fence;");
    assert_eq!((host.replies.len(), host.events.len()), (2, 0));
    assert!(Server::restore(&host.snapshot(), storage(&SMALL)).is_ok());
}

#[test]
fn another_client_is_refused() {
    let mut host = joined();
    assert!(again(&mut host, false).contains("rc=3;"), "its user is not verified");
    assert_eq!(host.events, [close(2, Closing::Refused)]);
    let mut host = joined();
    host.asks(1, "cmd=kvs-fence;");
    assert!(again(&mut host, true).contains("rc=3;"), "the rank waits in a fence");
    assert_eq!(host.events, [close(2, Closing::Refused)]);
    let mut host = joined();
    host.exits(1, Exit::Code(0));
    host.events.clear();
    assert!(again(&mut host, true).contains("rc=3;"), "the rank has exited");
}
