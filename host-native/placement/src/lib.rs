//! Placement of the ranks of an MPI job on hosts.
//!
//! [`locate`] finds the hosts of a job and maps its ranks to them. Hosts come from a list, from a host file, or from the
//! allocation of a [`ResourceManager`]. The result is a [`JobMap`] with the ranks of each host, and the [`Bootstrap`] that
//! starts a daemon there.
//!
//! ```
//! use hydrant_placement::{Environment, HostSource, Hosts, Location, PlacementOptions, locate};
//!
//! // Two hosts with four slots each, and a job of six ranks of one program.
//! let hosts = HostSource::List(Hosts::parse("n[01-02]:4")?);
//! let options = PlacementOptions { hosts, ..PlacementOptions::default() };
//! let environment = Environment { hostname: "login".to_owned(), variables: &|_| None };
//! let (Location::Nodes(deployment), Some(_)) = locate(&options, &mut [6], &environment)? else { panic!("no remote host") };
//!
//! let nodes = deployment.job_map.nodes();
//! assert_eq!(nodes[0].ranks().collect::<Vec<_>>(), [0, 1, 2, 3]);
//! assert_eq!(nodes[1].ranks().collect::<Vec<_>>(), [4, 5]);
//! assert_eq!(deployment.job_map.process_mapping()?, "(vector,(0,1,4),(1,1,2))");
//! assert_eq!(deployment.bootstrap.name(), "ssh");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate reads environment variables and host files only. It starts no process and opens no connection.
//!
//! Every host is a node with a daemon, also without ranks: a spawn may name it. Nodes 1 to n are the hosts; `PMI_process_mapping`
//! counts hosts from 0. Hosts take turns, and a host named twice is one node. A host's name goes into command lines: it consists of
//! letters, digits, `.`, `-` and `_`, or is an IPv6 address, and does not begin with a dash.

mod bootstrap;
mod cpu_binding;
mod environment;
mod error;
mod excerpt;
mod host_names;
pub mod hostfile;
pub mod hostlist;
mod hosts;
mod job_map;
mod limits;
mod locate;
mod memory_binding;
mod network_file;
mod network_topology;
mod node_grouping;
mod process_mapping;
mod resource_manager;
#[cfg(test)]
mod test_file;
mod topology;

pub use bootstrap::{Bootstrap, shell_quote};
pub use cpu_binding::{CpuBinding, is_oversubscribed, shared_processors};
pub use environment::Environment;
pub use error::{HostError, HostlistError, LineError, NetworkError, PlacementError};
pub use host_names::{attribute_part, host_attributes};
pub use hosts::{Host, Hosts, is_name_of, position};
pub use job_map::{
    JobMap, MapBy, MappingPolicy, NamedHost, Node, RankBy, RankRange, UnknownPolicy, candidates, node_pset,
};
pub use limits::{HOST_NAME_MAX, HOSTS_MAX, RANKS_MAX};
pub use locate::{Deployment, HostSource, Location, PlacementOptions, locate};
pub use memory_binding::{Binding, MemoryBinding, UnknownMemoryBinding};
pub use network_file::NetworkFile;
pub use network_topology::NetworkTopology;
pub use node_grouping::NodeGrouping;
pub use process_mapping::process_mapping;
pub use resource_manager::ResourceManager;
pub use topology::{Level, Objects, Topology, UnknownObject, format_ranges};
