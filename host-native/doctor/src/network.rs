//! Checks of the loopback interface, the machine's name and ports.

use crate::finding::Finding;
use crate::machine::Machine;

/// Number of ports below which large jobs run out of them.
const PORTS_LOW: u32 = 4096;

pub(crate) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![loopback(machine), name(machine)];
    findings.extend(ports(machine));
    findings
}

fn loopback(machine: &Machine) -> Finding {
    const TOPIC: &str = "loopback";
    match &machine.loopback {
        Ok(()) => Finding::ok(TOPIC, "127.0.0.1 accepts connections"),
        Err(error) => Finding::problem(
            TOPIC,
            format!("no connection over 127.0.0.1: {error}"),
            "start the interface (ip link set lo up), and let a packet filter accept it",
        ),
    }
}

fn name(machine: &Machine) -> Finding {
    const TOPIC: &str = "host name";
    let name = &machine.hostname;
    let hint = "add the name to /etc/hosts";
    match machine.name_resolves {
        Some(true) => Finding::ok(TOPIC, format!("{name} has an address")),
        Some(false) => {
            let text = format!("{name} has no address; MPI libraries that resolve their own name fail");
            Finding::note(TOPIC, text, Some(hint))
        }
        None => {
            let text = format!("the resolver does not answer for {name}; ranks may start slowly");
            Finding::note(TOPIC, text, Some(hint))
        }
    }
}

fn ports(machine: &Machine) -> Option<Finding> {
    const TOPIC: &str = "ports";
    let range = machine.read("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut words = range.split_whitespace().map(str::parse::<u32>);
    let (Some(Ok(first)), Some(Ok(last))) = (words.next(), words.next()) else { return None };
    let count = last.saturating_sub(first).saturating_add(1);
    let text = format!("{first} to {last} are given to connections");
    Some(match count < PORTS_LOW {
        true => Finding::note(
            TOPIC,
            format!("{text}: only {count}"),
            Some("widen net.ipv4.ip_local_port_range for jobs whose ranks connect by TCP"),
        ),
        false => Finding::ok(TOPIC, text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Root;

    #[test]
    fn a_machine_without_network_is_found() {
        let root = Root::new("network");
        let mut machine = root.machine();
        let levels = |machine: &Machine| check(machine).iter().map(|one| one.level).collect::<Vec<_>>();
        assert_eq!(levels(&machine), [Level::Ok, Level::Ok]);
        root.write("proc/sys/net/ipv4/ip_local_port_range", "60000\t60999\n");
        machine.loopback = Err("Network is unreachable".to_owned());
        machine.name_resolves = Some(false);
        assert_eq!(levels(&machine), [Level::Problem, Level::Note, Level::Note]);
        assert!(check(&machine)[2].text.ends_with("only 1000"));
        root.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
        machine.name_resolves = None;
        assert_eq!(levels(&machine), [Level::Problem, Level::Note, Level::Ok]);
        root.write("proc/sys/net/ipv4/ip_local_port_range", "many");
        assert_eq!(levels(&machine), [Level::Problem, Level::Note]);
    }
}
