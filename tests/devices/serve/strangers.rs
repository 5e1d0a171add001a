//! Ranks that fail, ranks that do not connect, and clients that are no ranks.

use std::io::{Read, Write};
use std::net::TcpStream;

use hydrant_tests::Job;
use rustix::process::Signal;

use super::{Machine, RAW, Server};

/// Two ranks that wait in a fence for the third.
fn two_wait(server: &Server) -> Vec<hydrant_tests::Running> {
    let waiting = "ack1\ninit1\nsend cmd=barrier_in\\n\neof\nsay cut off";
    (0..2).map(|rank| server.rank(rank, RAW).steps(waiting).start()).collect()
}

#[test]
fn a_rank_that_is_lost_is_named_and_the_others_are_cut_off() {
    for machine in [Machine::Here, Machine::Aarch64] {
        let server = machine.serve(3, "-v");
        let others = two_wait(&server);
        server.running.await_stderr("rank 0 has joined").await_stderr("rank 1 has joined");
        server.rank(2, RAW).steps("ack1\ninit1\nhangup").run().code(0);
        for other in others {
            other.wait().code(0).says("cut off", 1);
        }
        let outcome = server.wait();
        outcome.code(1).warns("rank 2 was lost without finalizing\n  rank 2 came from 127.0.0.1:");
        outcome.warns("\n  2 other ranks are cut off\n");
    }
}

#[test]
fn a_rank_that_dies_before_it_says_anything_is_no_rank() {
    let server = Machine::Here.serve(1, "");
    server.rank(0, RAW).steps("hangup").run().code(0);
    server.rank(0, RAW).steps("ack1\ninit1\nend1").run().code(0);
    server.wait().code(0).quiet();
}

#[test]
fn an_abort_is_the_exit_code() {
    let server = Machine::Here.serve(3, "");
    let others = two_wait(&server);
    server
        .rank(2, RAW)
        .steps(r"init2")
        .arg("frame")
        .arg("cmd=abort;isworld=TRUE;msg=no more;")
        .arg("eof")
        .run();
    for other in others {
        other.wait();
    }
    server.wait().code(1).warns("rank 2 aborted the job").warns("no more");
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let server = Machine::Here.serve(3, "--join-timeout 4 --fence-warning 1");
    let others = two_wait(&server);
    for other in others {
        other.wait().code(0).says("cut off", 1);
    }
    let outcome = server.wait();
    outcome.code(1).warns("ranks have been waiting for 1 s: 2 of 3 have come, missing: 2\n");
    outcome.warns(
        "the job is given up: 2 of 3 ranks have come within 4 s\n  missing: 2\n  2 other ranks are cut off",
    );
}

#[test]
fn a_signal_ends_it() {
    let server = Machine::Here.serve(2, "");
    server.running.signal(Signal::TERM);
    server.wait().code(143).warns("ended by SIGTERM: 0 of 2 ranks had joined the job");
    let server = Machine::Here.serve(2, "--jobs 0");
    server.running.signal(Signal::TERM);
    server.wait().code(0).quiet();
}

#[test]
fn a_rank_is_let_in_once_and_rubbish_not_at_all() {
    let server = Machine::Here.serve(2, "-v");
    // While it waits in a fence, no connection takes the place of its own.
    let fence = "send cmd=barrier_in\\n\nsay in\nexpect cmd=barrier_out rc=0";
    let first = server.rank(0, RAW).steps(&format!("ack1\ninit1\n{fence}\nend1")).start();
    server.running.await_stderr("rank 0 has joined");
    first.await_stdout("in\n", 1);
    server.rank(0, RAW).steps("send cmd=initack pmiid=0\\n\nrefused connected already\neof").run().code(0);
    server.rank(7, RAW).steps("send cmd=initack pmiid=7\\n\nrefused no such rank\neof").run().code(0);
    let mut stream = TcpStream::connect(&server.port).expect("the port is open");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("nothing was refused yet");
    let mut heard = Vec::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut heard);
    server.rank(1, RAW).steps("ack1\ninit1\nfence1\nend1").run().code(0);
    first.wait().code(0);
    server.wait().code(0).warns("closed a connection that was no rank's");
}

#[test]
fn addresses_that_are_not_allowed_are_closed() {
    let server = Machine::Here.serve(1, "--allow 10.0.0.0/8 --allow 2001:db8::/32");
    server.rank(0, RAW).steps("eof").run().code(0);
    server.running.await_stderr("--allow has no network with this address");
    server.running.signal(Signal::INT);
    server.wait().code(130);
    let server = Machine::Here.serve(1, "--allow 127.0.0.0/8");
    server.rank(0, RAW).steps("ack1\ninit1\nend1").run().code(0);
    server.wait().code(0).quiet();
}

#[test]
fn options_that_contradict_each_other() {
    let serve = |options: &str| Job::new(hydrant_tests::hydrant_bin()).arg("serve").words(options).run();
    serve("--size 4 --map 4,4").code(2).warns("--map has 8 ranks, but --size is 4");
    serve("--size 4 --programs 1,2").code(2).warns("--programs has 3 ranks, but --size is 4");
    serve("--size 4 --pset a=2-4").code(2).warns("the ranks of the job are 0 to 3");
    serve("--jobid x").code(2).warns("--size");
    serve("--limit keys=5").code(2).warns("names=N and conns=N");
}
