//! Settings of the build.

use embassy_net::{Config, Ipv4Address, Ipv4Cidr, StaticConfigV4};

mod build {
    include!(concat!(env!("OUT_DIR"), "/settings.rs"));
}
pub(crate) use build::RANKS;

/// Text of the secret: of the file that `HYDRANT_SECRET_FILE` named.
pub(crate) const SECRET: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/secret.rs"));

/// Returns the board's address, or that it asks for one.
pub(crate) fn network() -> Config {
    let Some((address, bits)) = build::ADDRESS else { return Config::dhcpv4(Default::default()) };
    Config::ipv4_static(StaticConfigV4 {
        address: Ipv4Cidr::new(address.into(), bits),
        gateway: build::GATEWAY.map(Ipv4Address::from),
        dns_servers: Default::default(),
    })
}
