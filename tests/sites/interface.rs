//! Hosts with several networks, one of which leads nowhere.

use hydrant_tests::Folder;
use hydrant_tests::peers::Peer;

use crate::namespaces::{HOSTS, Site};

/// Adds a network for containers to each host. All have the same address, as those that Docker makes.
const ADD_DOCKER: &str = "set -e
mount -t sysfs sysfs /sys
ip link add docker0 type veth peer name container
ip link set container up
ip address add 172.17.0.1/16 dev docker0
ip link set docker0 up";

/// Bytes that all hosts have received by an interface.
fn received(site: &Site, interface: &str) -> u64 {
    let count = |host| {
        let file = format!("/sys/class/net/{interface}/statistics/rx_bytes");
        let output = site.inside(host, "cat").arg(file).output().expect("cat starts");
        let text = String::from_utf8(output.stdout).expect("a number is text");
        text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{host} has no {interface}"))
    };
    HOSTS.map(count).iter().sum()
}

#[test]
fn ranks_use_the_interface_of_the_daemons() {
    let Some(site) = Site::start() else { return };
    for host in HOSTS {
        let status = site.inside(host, "sh").args(["-c", ADD_DOCKER]).status().expect("sh starts");
        assert!(status.success(), "docker0 on {host}: {status}");
    }
    for peer in [Peer::Mpich5, Peer::OpenMpi5, Peer::OpenMpi4] {
        if !peer.there() {
            continue;
        }
        let folder = Folder::new("interface");
        // ssh goes by eth0.
        for (wanted, other) in [("eth1", "eth0"), ("eth0", "eth1")] {
            let count = || [wanted, other].map(|interface| received(&site, interface));
            let before = count();
            let job = site.hydrant(&format!("-hosts a:2,b:2,c:2 -n 6 --iface {wanted}"));
            let job = job.assign(peer.variables(&folder.0)).arg(peer.program("mpi_allreduce"));
            job.run().code(0).says("allreduce of 6: 0 wrong\n", 1);
            let after = count();
            let [by_wanted, by_other] = [0, 1].map(|at| after[at] - before[at]);
            assert!(by_wanted > by_other, "{peer:?}: {by_wanted} bytes by {wanted}, {by_other} by {other}");
        }
        site.is_idle();
    }
}
