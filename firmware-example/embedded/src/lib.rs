//! Host of `hydrant-core` for boards: what a firmware does with its clients and hosts, without a network stack, a clock or memory
//! of its own.
//!
//! A [`Board`] says how large the tables are and what time it is, and its [`Net`] has the sockets. [`Serve`] passes the clients'
//! bytes to the server and sends its replies, [`Management`] carries out the requests of hosts, and [`Requests`] those of the host
//! whose node is served. [`turn`] does each of them once, and [`wake_at`] says when the next turn is due unless a socket
//! changes before. Nothing waits, except for a host that does not read its reports, if [`Net::send_all`] does.
//!
//! ```text
//! loop (smoltcp)       task (embassy-net)
//!       └─────────┬──────────┘
//!               turn
//!      ┌──────────┼───────────┐
//!  Management   Serve      Requests
//!               hydrant-core
//! ```
#![no_std]

#[macro_use]
mod log;
mod board;
mod calls;
mod channel;
mod connection;
mod links;
mod management;
mod net;
mod node;
pub mod noise;
mod serve;
#[cfg(feature = "smoltcp")]
mod smoltcp;
mod turn;

pub use board::{Board, LINK_RX_MAX, SEED, Sizes};
pub use connection::Connection;
pub use links::{Links, Slot};
pub use management::{HostSocket, Management};
pub use net::{Net, Socket, State};
pub use node::Requests;
pub use serve::{Client, Memory, Serve};
pub use turn::{Turn, turn, wake_at};
