//! Connections of the management protocol ([`hydrant_core::manage`]): records over TCP, encrypted if both ends have a secret.
//!
//! Both ends are a [`Connection`]: that of a host, which is the client, and that of a server. No function waits. The caller
//! polls the socket, and calls [`Connection::fill`] and [`Connection::flush`].
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//!
//! use hydrant_core::manage::{Request, VERSION, decode};
//! use hydrant_board::manage::{Connection, Secret};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = Secret::from_text(b"16 bytes or more")?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut host = Connection::of_host(TcpStream::connect(listener.local_addr()?)?, Some(&secret))?;
//! let mut server = Connection::of_server(listener.accept()?.0, Some(&secret))?;
//!
//! host.send(&Request::Hello { version: VERSION })?;
//! let mut record = Vec::new();
//! while !server.next(&mut record)? {
//!     host.fill()?;
//!     server.fill()?;
//! }
//! assert_eq!(decode(&record), Ok(Request::Hello { version: VERSION }));
//! # Ok(())
//! # }
//! ```

mod connection;
mod noise;
mod secret;

pub use connection::{Connection, ConnectionError, INBOX_MAX};
pub use secret::{Secret, SecretError};
