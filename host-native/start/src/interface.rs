//! Variables by which MPI libraries use a network interface.

use std::ffi::CString;
use std::fs;
use std::path::Path;

/// A variable with an interface, and others that the same library does not accept beside it.
const VARIABLES: [(&str, &[&str]); 4] = [
    // libfabric, of MPICH and Intel MPI.
    ("FI_TCP_IFACE", &[]),
    ("FI_SOCKETS_IFACE", &[]),
    // MPICH with ch3, and the older names.
    (
        "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE",
        &[
            "MPICH_NEMESIS_TCP_NETWORK_IFACE",
            "MPIR_CVAR_CH3_NETWORK_IFACE",
            "MPIR_CVAR_NETWORK_IFACE",
            "MPICH_NETWORK_IFACE",
            "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
            "MPIR_CVAR_INTERFACE_HOSTNAME",
            "MPICH_INTERFACE_HOSTNAME",
        ],
    ),
    ("OMPI_MCA_btl_tcp_if_include", &["OMPI_MCA_btl_tcp_if_exclude"]),
];
/// The variable of UCX, whose interfaces are those of RDMA too.
const UCX: &str = "UCX_NET_DEVICES";

/// Returns the variables, as `NAME=VALUE`, for the interface `name` of this machine. Those whose library the user has told
/// otherwise are left out. `is_assigned` tells whether a program has a variable.
pub(crate) fn variables(name: &str, is_assigned: impl Fn(&str) -> bool) -> Vec<CString> {
    let free = VARIABLES.iter().filter(|(variable, others)| {
        !is_assigned(variable) && !others.iter().any(|&other| is_assigned(other))
    });
    let all = free.map(|(variable, _)| format!("{variable}={name}"));
    let ucx = ucx_devices(Path::new("/sys/class"), name).filter(|_| !is_assigned(UCX));
    let all = all.chain(ucx.map(|devices| format!("{UCX}={devices}")));
    // Names of interfaces have no NUL.
    all.filter_map(|text| CString::new(text).ok()).collect()
}

/// Returns the devices of UCX for an interface: the RDMA device below it, if it has one, and the interface. None if the machine has
/// RDMA devices, but the interface is on top of none: UCX would use none of them.
fn ucx_devices(class: &Path, name: &str) -> Option<String> {
    let first = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names.into_iter().next()
    };
    if first(&class.join("infiniband")).is_none() {
        return Some(name.to_owned());
    }
    let interface = class.join("net").join(name);
    let rdma = first(&interface.join("device/infiniband"))?;
    // Ports of a device count from 1, those of an interface from 0.
    let port = fs::read_to_string(interface.join("dev_port")).ok()?.trim().parse::<u32>().ok()?;
    Some(format!("{rdma}:{},{name}", port.checked_add(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_the_user_has_told_otherwise_is_left_alone() {
        let of = |assigned: &'static [&'static str]| {
            let all = variables("eth1", |name| assigned.contains(&name));
            all.iter()
                .filter_map(|text| Some(text.to_str().unwrap().split_once('=')?.0.to_owned()))
                .collect::<Vec<_>>()
        };
        let all = of(&[]);
        assert!(all.len() >= 4 && all.contains(&"OMPI_MCA_btl_tcp_if_include".to_owned()), "{all:?}");
        let without = |name: &str| all.iter().filter(|other| *other != name).cloned().collect::<Vec<_>>();
        assert_eq!(of(&["FI_TCP_IFACE"]), without("FI_TCP_IFACE"));
        assert_eq!(of(&["OMPI_MCA_btl_tcp_if_exclude"]), without("OMPI_MCA_btl_tcp_if_include"));
        assert_eq!(of(&["MPICH_INTERFACE_HOSTNAME"]), without("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE"));
    }

    #[test]
    fn ucx_keeps_the_device_below_an_interface() {
        let class = std::env::temp_dir().join(format!("hydrant-interface-{}", std::process::id()));
        for folder in ["net/eth0", "net/ib1/device/infiniband/mlx5_0"] {
            fs::create_dir_all(class.join(folder)).unwrap();
        }
        fs::write(class.join("net/ib1/dev_port"), "1\n").unwrap();
        let devices = |name| ucx_devices(&class, name);
        assert_eq!(devices("eth0").as_deref(), Some("eth0"), "no device for RDMA is known");
        fs::create_dir_all(class.join("infiniband/mlx5_0")).unwrap();
        assert_eq!(devices("eth0"), None, "UCX would use this interface in place of the device");
        assert_eq!(devices("ib1").as_deref(), Some("mlx5_0:2,ib1"));
        fs::remove_dir_all(&class).unwrap();
    }
}
