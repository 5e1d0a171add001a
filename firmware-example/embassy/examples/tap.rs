//! A board on this machine: a task that serves ranks over a TAP device, for an address in its network.
//!
//! ```text
//! ip tuntap add tap0 mode tap && ip addr add 10.9.0.1/24 dev tap0 && ip link set tap0 up
//! cargo run -p hydrant-embassy --example tap -- tap0 10.9.0.2 &
//! hydrant offload --target 10.9.0.2:4100 -n 4 ./a.out
//! ```

#[cfg(target_os = "linux")]
mod board {
    use std::net::Ipv4Addr;
    use std::process::exit;
    use std::{env, fs};

    use embassy_executor::{Executor, Spawner};
    use embassy_net::{Config, Ipv4Cidr, Runner, StackResources, StaticConfigV4};
    use embassy_net_tuntap::TunTapDevice;
    use hydrant_embassy::{Board, Limits, Net, Reports, Settings, Sizes, Storage, fixed_storage};
    use static_cell::StaticCell;

    struct Tap;

    impl Board for Tap {
        type Net = Net;
        type Tables = fixed_storage!(<Tap as Sizes>::TABLES);

        const NAME: &'static str = "tap";
        const LIMITS: Limits = hydrant_embassy::limits(16, 4);

        fn lend(tables: &mut Self::Tables) -> Storage<'_> {
            tables.lend()
        }

        fn millis() -> u64 {
            hydrant_embassy::millis()
        }

        fn ephemeral(_: &[u8; 32]) -> [u8; 32] {
            random()
        }
    }

    /// Returns random bytes.
    fn random<const N: usize>() -> [u8; N] {
        let mut bytes = [0; N];
        let file = fs::File::open("/dev/urandom");
        let read = file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
        read.unwrap_or_else(|why| fail(&format!("/dev/urandom: {why}")));
        bytes
    }

    fn fail(why: &str) -> ! {
        eprintln!("tap: {why}");
        exit(1)
    }

    #[embassy_executor::task]
    async fn network(mut runner: Runner<'static, TunTapDevice>) -> ! {
        runner.run().await
    }

    #[embassy_executor::task]
    async fn start(spawner: Spawner, device: TunTapDevice, address: Ipv4Addr) {
        static RESOURCES: StaticCell<StackResources<{ hydrant_embassy::sockets::<Tap>() }>> =
            StaticCell::new();
        static REPORTS: Reports = Reports::new();
        let config = StaticConfigV4 {
            address: Ipv4Cidr::new(address, 24),
            gateway: None,
            dns_servers: Default::default(),
        };
        let resources = RESOURCES.init(StackResources::new());
        let seed = u64::from_le_bytes(random());
        let (stack, runner) = embassy_net::new(device, Config::ipv4_static(config), resources, seed);
        spawner.spawn(network(runner).expect("spawned once"));
        stack.wait_config_up().await;
        println!("{} serves up to {} ranks at {address}", Tap::NAME, Tap::LIMITS.ranks);
        hydrant_embassy::serve(hydrant_embassy::resources!(Tap, stack), Settings::DEFAULT, &REPORTS).await
    }

    pub(crate) fn main() -> ! {
        let words: Vec<String> = env::args().skip(1).collect();
        let [name, address] = &words[..] else { fail("usage: tap DEVICE ADDRESS") };
        let address = address.parse().unwrap_or_else(|why| fail(&format!("{address}: {why}")));
        let device = TunTapDevice::new(name).unwrap_or_else(|why| fail(&format!("{name}: {why}")));
        static EXECUTOR: StaticCell<Executor> = StaticCell::new();
        EXECUTOR.init(Executor::new()).run(|spawner| {
            spawner.spawn(start(spawner, device, address).expect("spawned once"));
        })
    }
}

#[cfg(target_os = "linux")]
fn main() {
    board::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("tap: only Linux has TAP devices that this example can use");
}
