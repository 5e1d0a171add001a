//! Groups of Debian's libpmix 4.2.2 and of the libpmix of Open MPI 5, without MPI.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, Outcome, nodes};

use super::libpmix::with_libpmix_5;
use super::openmpi::relocated;

/// Plays a scene of `tests/clients/pmix_groups.c` on three ranks, with each library, on one host and on two.
fn play(options: &str, scene: &str) -> Vec<Outcome> {
    if !Peer::Libpmix.there() {
        return Vec::new();
    }
    let mut outcomes = Vec::new();
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let options = format!("{options} {hosts}");
        outcomes.push(play_on(&options, 3, scene));
        if Peer::OpenMpi5.there() {
            outcomes.push(with_libpmix_5(&options, "pmix_groups", scene));
        }
    }
    outcomes
}

/// Plays a scene on as many ranks with libpmix 4.2.2.
fn play_on(options: &str, size: u32, scene: &str) -> Outcome {
    let job = relocated(Job::hydrant(&format!("{options} -n {size}")));
    job.arg(Peer::Libpmix.program("pmix_groups")).arg(scene).run()
}

/// The event that a group is complete names all members, and is longer than the value of a name.
#[test]
fn many_are_invited() {
    if !Peer::Libpmix.there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 20, 2)] {
        play_on(&hosts, 40, "invites").code(0).quiet().says(": invites done\n", 40);
    }
}

// Serves: Requests | groups by invitation (`PMIx_Group_invite`, `PMIx_Group_join`) | served: by events, which count as those.
// Members are told if the leader dies, and the leader if one that it has invited does (`PMIX_PROC_TERMINATED`, also of a
// client that has registered for no other code of a death), in jobs that continue after a death. libpmix 4 and 5 leave no
// group: their request (27) is refused, under `prterun` too
#[test]
fn the_invited_come_or_decline() {
    for scene in ["invites", "declines"] {
        for outcome in play("", scene) {
            outcome.code(0).quiet().says(&format!(": {scene} done\n"), 3);
        }
    }
}

// Fault: The leader of a PMIx group by invitation dies, or a process that it has invited
// Outcome: those who wait for it get an event
// Guarantee: Nobody waits for the dead in a job that continues
#[test]
fn those_who_form_a_group_are_told_of_deaths() {
    for scene in ["guest-dies", "leader-dies"] {
        for outcome in play("-disable-auto-cleanup", scene) {
            outcome.code(137).says(&format!(": {scene} done\n"), 2);
        }
    }
}

// Fault: A member of a PMIx group dies before it comes to the construction
// Outcome: the others get an error, or form the group and are told who is lost, if one of them asks for that
// Guarantee: All who live get the same outcome, on all nodes
#[test]
fn a_group_survives_a_member_if_one_asks_for_it() {
    for outcome in play("-disable-auto-cleanup", "survives") {
        outcome.code(137).says(": survives done\n", 2);
    }
}

#[test]
fn members_that_know_only_themselves_form_a_group() {
    for outcome in play("", "leads") {
        outcome.code(0).quiet().says(": leads done\n", 3);
    }
}

#[test]
fn what_members_have_put_is_found_without_a_commit() {
    for outcome in play("", "endpoints") {
        outcome.code(0).quiet().says(": endpoints done\n", 3);
    }
}
