//! Memory of a board.

use embassy_net::Stack;
use embassy_net::tcp::TcpSocket;
use heapless::VecView;
use hydrant_core::manage::server::HostSlot;
use hydrant_embedded::{Client, HostSocket, Links};

use crate::Board;
use crate::net::Net;
use crate::socket::Buffered;

/// Memory and sockets of a board, from [`resources!`](crate::resources).
#[expect(missing_docs)]
pub struct Resources<B: Board<Net = Net>> {
    pub net: Net,
    pub tables: &'static mut B::Tables,
    pub scratch: [&'static mut [u8]; 2],
    pub requests: &'static mut [u8],
    pub returns: &'static mut [u8],
    pub clients: &'static mut VecView<Client<B>>,
    pub hosts: &'static mut VecView<HostSocket<B>>,
    pub slots: &'static mut [HostSlot],
    pub links: Option<&'static mut Links<B>>,
}

/// What the macro uses.
#[doc(hidden)]
pub mod parts {
    pub use heapless::{Vec, VecView};
    pub use hydrant_core::manage::server::HostSlot;
    pub use hydrant_embedded::{Client, HostSocket, Links, Slot};
    pub use static_cell::{ConstStaticCell, StaticCell};

    pub use crate::socket::Buffered;
}

/// Adds a socket over buffers to receive, to send, and for received bytes. Returns its number.
#[doc(hidden)]
pub fn add(
    sockets: &mut VecView<Buffered>,
    stack: Stack<'static>,
    [receive, send, inbox]: [&'static mut [u8]; 3],
) -> usize {
    let number = sockets.len();
    let added = sockets.push(Buffered::new(TcpSocket::new(stack, receive, send), inbox));
    assert!(added.is_ok(), "there is room for as many sockets as the board has");
    number
}

/// Places the memory of a [`Board`](crate::Board) in statics and adds its sockets to a [`Stack`]. Returns its
/// [`Resources`]. An expression that is evaluated once.
#[macro_export]
macro_rules! resources {
    ($board:ty, $stack:expr) => {{
        #[allow(unused_imports)]
        use $crate::{Board as _, Sizes as _};
        use $crate::parts::{
            Buffered, Client, ConstStaticCell, HostSlot, HostSocket, Links, Slot, StaticCell, Vec, VecView,
        };
        macro_rules! zeroes {
            ($len:expr) => {{
                static BYTES: ConstStaticCell<[u8; $len]> = ConstStaticCell::new([0; $len]);
                &mut BYTES.take()[..]
            }};
            ($len:expr; $count:expr) => {{
                static BYTES: ConstStaticCell<[[u8; $len]; $count]> =
                    ConstStaticCell::new([[0; $len]; $count]);
                BYTES.take().iter_mut().map(|bytes| &mut bytes[..])
            }};
        }
        macro_rules! list {
            ($item:ty; $len:expr) => {{
                static LIST: StaticCell<Vec<$item, { $len }>> = StaticCell::new();
                let list: &'static mut VecView<$item> = LIST.init_with(Vec::new);
                list
            }};
        }
        const CLIENTS: usize = <$board>::CLIENTS;
        const LINKS: usize = <$board>::LINKS;
        const PARENTS: usize = <$board>::PARENTS;
        let stack = $stack;
        let sockets = list!(Buffered; $crate::sockets::<$board>());
        let clients = list!(Client<$board>; CLIENTS);
        let buffers = zeroes!(<$board>::CLIENT_BUFFER; CLIENTS)
            .zip(zeroes!(<$board>::CLIENT_BUFFER; CLIENTS))
            .zip(zeroes!(<$board>::CLIENT_BUFFER; CLIENTS));
        for ((receive, send), inbox) in buffers {
            let _ = clients.push(Client::new($crate::add(sockets, stack, [receive, send, inbox])));
        }
        let hosts = list!(HostSocket<$board>; LINKS);
        let buffers = zeroes!(<$board>::LINK_RX_BUFFER; LINKS)
            .zip(zeroes!(<$board>::LINK_TX; LINKS))
            .zip(zeroes!(<$board>::LINK_RX_BUFFER; LINKS));
        for ((receive, send), inbox) in buffers {
            let _ = hosts.push(HostSocket::new($crate::add(sockets, stack, [receive, send, inbox])));
        }
        let buffers = zeroes!(<$board>::LINK_RX_BUFFER; PARENTS)
            .zip(zeroes!(<$board>::PARENT_TX; PARENTS))
            .zip(zeroes!(<$board>::LINK_RX_BUFFER; PARENTS));
        let mut links: Option<&'static mut Links<$board>> = None;
        for ((receive, send), inbox) in buffers {
            static MEMORY: StaticCell<Links<$board>> = StaticCell::new();
            let parent = $crate::add(sockets, stack, [receive, send, inbox]);
            let slots = list!(Slot<$board>; <$board>::BOARD_LINKS);
            for inbox in zeroes!(<$board>::INBOX; <$board>::BOARD_LINKS) {
                let _ = slots.push(Slot::new(inbox));
            }
            links = Some(MEMORY.init(Links::new(parent, &mut slots[..])));
        }
        static TABLES: ConstStaticCell<<$board as $crate::Board>::Tables> =
            ConstStaticCell::new($crate::FixedStorage::new());
        static SLOTS: ConstStaticCell<[HostSlot; LINKS]> = ConstStaticCell::new([HostSlot::EMPTY; LINKS]);
        $crate::Resources::<$board> {
            net: $crate::Net::new(&mut sockets[..], zeroes!($crate::waiting::<$board>())),
            tables: TABLES.take(),
            scratch: [zeroes!(<$board>::REPLY), zeroes!(<$board as $crate::Board>::LONG)],
            requests: zeroes!(<$board>::REQUESTS),
            returns: zeroes!(<$board>::RETURNS),
            clients,
            hosts,
            slots: &mut SLOTS.take()[..],
            links,
        }
    }};
}
