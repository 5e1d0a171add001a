//! Real clients and raw ones, served by both machines.

use hydrant_tests::offload::SPAWN;
use hydrant_tests::peers::Peer;

use super::{Machine, RAW, succeed};

fn mpich(machine: Machine, options: &str, size: u32) {
    for peer in [Peer::Mpich5, Peer::Mpich4] {
        if !peer.there() {
            continue;
        }
        let server = machine.serve(size, options);
        let ranks = server.ranks(peer.program("mpi_allreduce"), |job| job);
        ranks[0].says(&format!("allreduce of {size}: 0 wrong\n"), 1);
        succeed(&ranks);
        server.wait().code(0).quiet();
    }
}

/// As if each rank were on a node of its own, which goes through the network: right wherever they are.
#[test]
fn mpich_with_every_placement() {
    for options in ["", "--map together", "--map 2", "--map 1,3"] {
        mpich(Machine::Here, options, 4);
    }
}

#[test]
fn mpich_served_by_aarch64() {
    mpich(Machine::Aarch64, "", 4);
}

#[test]
fn mpich_is_told_what_the_options_say() {
    if !Peer::Mpich5.there() {
        return;
    }
    let server = Machine::Here.serve(3, "--usize 7 --programs 1,2");
    let ranks = server.ranks(Peer::Mpich5.program("mpi_hello"), |job| job);
    for (rank, program) in [0, 1, 1].into_iter().enumerate() {
        ranks[rank].code(0).says(&format!("rank {rank} of 3, program {program}, universe 7, MPICH 5.0.2"), 1);
    }
    server.wait().code(0).quiet();
}

fn slurm(machine: Machine) {
    if !Peer::SlurmPmi2.there() {
        return;
    }
    let server = machine.serve(16, "");
    let ranks = server.ranks(Peer::SlurmPmi2.program("pmi2_kvs"), |job| job.words("-k 4 -v 300"));
    succeed(&ranks);
    ranks[0].says("pmi2 size=16 ", 1).says(" errs=0 ", 1);
    server.wait().code(0).quiet();
}

#[test]
fn slurms_library() {
    slurm(Machine::Here);
}

#[test]
fn slurms_library_served_by_aarch64() {
    slurm(Machine::Aarch64);
}

/// What a raw client of either protocol asks for, and what it has to get.
const EXCHANGES: [(&str, &str); 8] = [
    (
        "put, fence, get and the attributes of PMI-1",
        r"ack1
        init1
        send cmd=get_universe_size\n
        expect cmd=universe_size rc=0 size=-1
        send cmd=get_my_kvsname\n
        expect cmd=my_kvsname rc=0 kvsname=%j
        send cmd=put kvsname=%j key=k%r value=v%r\n
        expect cmd=put_result rc=0
        fence1
        send cmd=get kvsname=%j key=k2\n
        expect cmd=get_result rc=0 value=v2
        send cmd=get kvsname=%j key=nobodys\n
        refused not
        send cmd=get kvsname=%j key=PMI_process_mapping\n
        expect cmd=get_result rc=0 value=(vector,(0,3,1))
        end1",
    ),
    (
        "put, fence, get and the attributes of PMI-2",
        r"init2
        frame cmd=kvs-put;key=k%r;value=v;;%r;
        expect cmd=kvs-put-response;rc=0;
        fence2
        frame cmd=kvs-get;jobid=%j;srcid=-1;key=k1;
        expect cmd=kvs-get-response;rc=0;found=TRUE;
        frame cmd=info-getjobattr;key=universeSize;
        expect cmd=info-getjobattr-response;rc=0;found=FALSE;
        frame cmd=info-getjobattr;key=PMI_process_mapping;
        expect cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,3,1));
        end2",
    ),
    (
        "a value that a rank of the node puts while another waits for it",
        r"init2
        only 0
        frame cmd=info-getnodeattr;key=late;wait=TRUE;
        expect cmd=info-getnodeattr-response;rc=0;found=TRUE;value=here;
        only 1
        frame cmd=info-putnodeattr;key=late;value=here;
        expect cmd=info-putnodeattr-response;rc=0;
        all
        fence2
        end2",
    ),
    (
        "a barrier of some ranks",
        r"ack1
        init1
        only 0,2
        send cmd=barrier_in group=0,2 tag=1\n
        expect cmd=barrier_out rc=0
        all
        fence1
        end1",
    ),
    (
        "a ring",
        r"init2
        frame cmd=ring;ring-count=1;ring-left=l%r;ring-right=r%r;
        expect cmd=ring-response;rc=0;ring-count=%r;
        fence2
        end2",
    ),
    (
        "names",
        r"init2
        only 1
        frame cmd=name-publish;name=ocean;port=here;
        expect cmd=name-publish-response;rc=0;
        all
        fence2
        frame cmd=name-lookup;name=ocean;
        expect cmd=name-lookup-response;rc=0;
        fence2
        end2",
    ),
    (
        "an oversize key, which costs nothing else",
        r"init2
        frame cmd=kvs-put;key=kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk;value=v;
        refused key is longer than 64
        fence2
        end2",
    ),
    ("a spawn, which this server does not support", SPAWN),
];

fn exchanges(machine: Machine) {
    for (what, steps) in EXCHANGES {
        let server = machine.serve(3, "");
        for (rank, outcome) in server.ranks(RAW, |job| job.steps(steps)).iter().enumerate() {
            assert!(outcome.status.success(), "{what}: rank {rank}: {outcome}");
        }
        server.wait().code(0).quiet();
    }
}

#[test]
fn raw_clients() {
    exchanges(Machine::Here);
}

#[test]
fn raw_clients_served_by_aarch64() {
    exchanges(Machine::Aarch64);
}

#[test]
fn process_sets() {
    let server = Machine::Here.serve(4, "--programs 1,3 --pset ocean=0-1 --pset atmos=2-3");
    let steps = r"init2
        frame cmd=pset-count;
        expect cmd=pset-count-response;rc=0;count=4;
        only 0,1
        frame cmd=pset-info;name=atmos;
        refused this rank is not in it
        only 2,3
        frame cmd=pset-info;name=atmos;
        expect cmd=pset-info-response;rc=0;size=2;
        only 1,2,3
        frame cmd=pset-info;name=hydrant://app/1;
        expect cmd=pset-info-response;rc=0;size=3;
        all
        fence2
        end2";
    let ranks = server.ranks(RAW, |job| job.steps(steps));
    succeed(&ranks);
    server.wait().code(0).quiet();
}

/// One job after the other on the same port, ranks of the next coming while the one before is still there.
#[test]
fn jobs_one_after_the_other() {
    for machine in [Machine::Here, Machine::Aarch64] {
        let server = machine.serve(2, "--jobs 3 -v");
        for _ in 0..3 {
            let ranks = server.ranks(RAW, |job| job.steps("init2\nfence2\nend2"));
            succeed(&ranks);
        }
        server.wait().code(0).warns("job 2 is over: every rank has left");
    }
}
