//! Addresses of network interfaces, and of the interface that leads to a host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use crate::error::InterfaceError;

/// The addresses of the interface with this name or address.
pub(crate) fn interface_addrs(name: &str) -> Result<Vec<IpAddr>, InterfaceError> {
    let all = interfaces()?;
    if let Ok(ip) = name.parse::<IpAddr>() {
        if all.iter().any(|(_, other)| *other == Some(ip)) {
            return Ok(vec![ip]);
        }
    } else if all.iter().any(|(other, _)| other == name) {
        let of_name = all.iter().filter(|(other, _)| other == name).filter_map(|(_, ip)| *ip);
        let mut ips: Vec<IpAddr> = of_name.filter(|ip| !is_link_local(*ip)).collect();
        // One family is enough. IPv4 is the more common one.
        ips.sort_by_key(IpAddr::is_ipv6);
        ips.truncate(1);
        return if ips.is_empty() { Err(InterfaceError::NoAddress(name.to_owned())) } else { Ok(ips) };
    }
    let mut names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    Err(InterfaceError::Unknown(name.to_owned(), names))
}

/// The name that an interface, given by name or address, has on this machine. An address that this machine lacks stands for the
/// interface that leads to the first reachable of `addrs`. None if there is no such interface.
pub(crate) fn interface_name(name: &str, addrs: &[SocketAddr]) -> Option<String> {
    let all = interfaces().ok()?;
    let of = |ip: IpAddr| all.iter().find(|(_, other)| *other == Some(ip)).map(|(name, _)| name.clone());
    match name.parse() {
        Ok(ip) => of(ip).or_else(|| of(local_addr_towards_first(addrs)?)),
        Err(_) => all.iter().any(|(other, _)| other == name).then(|| name.to_owned()),
    }
}

/// The addresses from which this machine reaches `hosts`. If the address of a host is unknown, for example because only
/// ssh understands its name, the address of the default route is added.
pub(crate) fn local_addrs_towards<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    let mut add = |ip: Option<IpAddr>| {
        let found = ip.is_some();
        ips.extend(ip.filter(|ip| !ips.contains(ip)).into_iter().collect::<Vec<_>>());
        found
    };
    for host in hosts {
        // A look-up that fails may take long, so the first failure ends the search.
        if !add(local_addr_towards_host(host)) {
            add(local_addr_towards(SocketAddr::from(([192, 0, 2, 1], 9))));
            break;
        }
    }
    if ips.is_empty() {
        ips.push(Ipv4Addr::LOCALHOST.into());
    }
    ips
}

/// The address from which this machine reaches the first reachable of `addrs`.
pub(crate) fn local_addr_towards_any(addrs: &[SocketAddr]) -> IpAddr {
    local_addr_towards_first(addrs).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

fn local_addr_towards_first(addrs: &[SocketAddr]) -> Option<IpAddr> {
    addrs.iter().find_map(|&addr| local_addr_towards(addr))
}

fn local_addr_towards_host(host: &str) -> Option<IpAddr> {
    // ssh accepts USER@HOST.
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    (name, 9).to_socket_addrs().ok()?.find_map(local_addr_towards)
}

/// The source address of packets to `addr`. No packet is sent.
fn local_addr_towards(addr: SocketAddr) -> Option<IpAddr> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(addr).ok()?;
    socket.local_addr().ok().map(|addr| addr.ip()).filter(|ip| !is_link_local(*ip))
}

/// Whether an address is valid only together with an interface.
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Names and addresses of all interfaces. An interface with several addresses is listed several times.
fn interfaces() -> io::Result<Vec<(String, Option<IpAddr>)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores a pointer to a list of its own.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: `getifaddrs` links the list by these pointers, and the last one is null. Names are NUL-terminated. An
    // address is null or a `sockaddr` of the size of its family. The list is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: see above.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: see above.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|addr| libc::c_int::from(addr.sa_family));
        let ip = match family {
            Some(libc::AF_INET) => {
                // SAFETY: see above; the family is AF_INET.
                let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                Some(IpAddr::from(addr.sin_addr.s_addr.to_ne_bytes()))
            }
            Some(libc::AF_INET6) => {
                // SAFETY: see above; the family is AF_INET6.
                let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                Some(IpAddr::from(addr.sin6_addr.s6_addr))
            }
            _ => None,
        };
        all.push((name, ip));
        next = entry.ifa_next;
    }
    // SAFETY: `getifaddrs` made the list, and no pointer into it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_names_and_addresses() {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(interface_addrs("127.0.0.1").unwrap(), [loopback]);
        assert_eq!(interface_addrs("lo").unwrap(), [loopback]);
        let error = interface_addrs("nothing0").unwrap_err().to_string();
        assert!(
            error.starts_with("this machine has no network interface \"nothing0\"; there are "),
            "{error}"
        );
        assert!(error.contains("lo") && interface_addrs("192.0.2.77").is_err());
    }

    #[test]
    fn an_address_names_its_interface_or_the_one_of_the_route() {
        let towards = [SocketAddr::from((Ipv4Addr::LOCALHOST, 9))];
        let name = |text, addrs| interface_name(text, addrs);
        assert_eq!(name("lo", &[]).as_deref(), Some("lo"));
        assert_eq!(name("127.0.0.1", &[]).as_deref(), Some("lo"));
        assert_eq!(name("192.0.2.77", &towards).as_deref(), Some("lo"));
        assert_eq!(name("192.0.2.77", &[]), None);
        assert_eq!(name("nothing0", &towards), None);
    }

    #[test]
    fn local_addresses_follow_the_route() {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(local_addrs_towards(["127.0.0.1", "me@127.0.0.1"].into_iter()), [loopback]);
        assert!(!local_addrs_towards(["no.such.host.invalid"].into_iter()).is_empty());
    }
}
