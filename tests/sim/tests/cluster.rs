//! The short run of the cluster's simulation; the long one is the command `sim cluster`.

use hydrant_sim::cluster;

/// Of which some have a daemon that lies or is lost, and some a rank that fails.
const SEEDS: std::ops::Range<u64> = 0..1000;

// Fault: A daemon sends reports, output and messages that are legal bytes and false
// Outcome: the run ends and names the host, or the ranks of all other hosts end well
// Guarantee: A thousand seeds of whole clusters, with lying and lost daemons, hosts that join or stand still,
// failing ranks and Ctrl-C. Output and input are whole and in order
#[test]
fn the_run_ends_with_its_first_failure() {
    let (mut failed, mut lies, mut overtaken, mut read) = (0, 0, 0, 0);
    let (mut output, mut input, mut waited, mut joined, mut needed, mut left) = (0, 0, [0; 2], [0; 2], 0, 0);
    let mut frozen = [0; 2];
    for seed in SEEDS {
        let summary = std::panic::catch_unwind(|| cluster::run(seed));
        let summary = summary.unwrap_or_else(|_| panic!("seed {seed} breaks a promise"));
        failed += u32::from(summary.failed);
        lies += summary.lies;
        overtaken += summary.overtaken;
        read += summary.read;
        output += summary.output;
        input += summary.input;
        waited = [0, 1].map(|at| waited[at] + summary.waited[at]);
        left += summary.left;
        frozen = [0, 1].map(|at| frozen[at] + summary.frozen[at]);
        needed += summary.needed;
        joined = [0, 1].map(|at| joined[at] + summary.joined[at]);
    }
    assert!(
        failed > 250 && lies > 300 && output > 1 << 20,
        "{failed} runs failed, {lies} lies, {output} bytes"
    );
    assert!(
        overtaken > 40 && read > 1000,
        "{overtaken} messages of boards have overtaken orders, {read} values were read"
    );
    let [hosts, ranks] = joined;
    assert!(hosts > 200 && ranks > 20, "{hosts} hosts have joined, and {ranks} ranks were started there");
    assert!(needed > 20 && left > 50, "spawns have needed {needed} hosts, {left} hosts have left");
    let [stood, given_up] = frozen;
    assert!(stood > 250 && given_up > 20, "{stood} hosts stood still, {given_up} of them too long");
    let [found, late] = waited;
    assert!(
        input > 1 << 20 && found > 20 && late > 20,
        "{input} bytes read, {found} names found, {late} not"
    );
}

#[test]
fn a_server_restored_at_any_moment_goes_on_as_the_one_before() {
    for seed in 0..200 {
        let summary = std::panic::catch_unwind(|| cluster::run_succeeded(seed));
        summary.unwrap_or_else(|_| panic!("seed {seed} breaks a promise"));
    }
}
