//! Network between the hosts of a job, as pmi2.h describes it in attributes.

use std::path::Path;
use std::str::FromStr;

use crate::environment::Environment;
use crate::error::{NetworkError, PlacementError};
use crate::network_file::{NetworkFile, dimensions, list};

/// Network between hosts. Ranks of one host are connected completely, so the whole is hierarchical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkTopology {
    /// Complete networks above each other, such as levels of switches.
    Complete {
        /// Number of levels, at least 1.
        levels: u32,
    },
    /// Mesh or torus with these dimensions. The hosts take its places in their order.
    Cartesian(Vec<u32>),
    /// Hypercube.
    Hypercube,
    /// Kautz graph.
    Kautz,
    /// Network that a file describes.
    File(NetworkFile),
}

impl FromStr for NetworkTopology {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<NetworkTopology, NetworkError> {
        match text {
            "complete" => return Ok(NetworkTopology::Complete { levels: 1 }),
            "hypercube" => return Ok(NetworkTopology::Hypercube),
            "kautz" => return Ok(NetworkTopology::Kautz),
            _ => {}
        }
        if let Some(file) = text.strip_prefix("file:") {
            return NetworkFile::read(Path::new(file)).map(NetworkTopology::File);
        }
        let dimensions = text.strip_prefix("cart:").and_then(dimensions);
        Ok(NetworkTopology::Cartesian(dimensions.ok_or(NetworkError::Unknown)?))
    }
}

impl NetworkTopology {
    /// The network that Slurm describes in `SLURM_TOPOLOGY_ADDR_PATTERN`, as `switch.switch.node`. Without it, a complete
    /// network.
    pub fn of_environment(environment: &Environment<'_>) -> NetworkTopology {
        let pattern = environment.variable("SLURM_TOPOLOGY_ADDR_PATTERN");
        let pattern = pattern.as_deref().and_then(|pattern| pattern.to_str()).unwrap_or_default();
        let switches = pattern.split('.').filter(|part| *part == "switch").count();
        NetworkTopology::Complete { levels: switches.max(1) as u32 }
    }

    /// Attributes of the job: names of pmi2.h with their values.
    pub fn job_attributes(&self) -> Vec<(&'static str, String)> {
        let network = match self {
            NetworkTopology::Complete { levels } => vec!["complete"; *levels as usize],
            NetworkTopology::Cartesian(_) => vec!["cartesian"],
            NetworkTopology::Hypercube => vec!["hypercube"],
            NetworkTopology::Kautz => vec!["kautz"],
            NetworkTopology::File(network) => return network.job_attributes(),
        };
        // The last level connects the ranks of a host.
        let levels = network.join(",") + ",complete";
        let mut attributes =
            vec![("physTopology", "hierarchical".to_owned()), ("physTopologyLevels", levels)];
        if let NetworkTopology::Cartesian(dimensions) = self {
            attributes.push(("cartDims", list(dimensions, ",")));
        }
        attributes
    }

    /// `cartCoords` of each host, in their order, in which the last coordinate counts fastest. Empty unless the network is
    /// Cartesian.
    ///
    /// # Errors
    /// [`PlacementError::SmallNetwork`], [`PlacementError::NoPlace`].
    pub fn coordinates(&self, hosts: &[&str]) -> Result<Vec<String>, PlacementError> {
        let dimensions = match self {
            NetworkTopology::Cartesian(dimensions) => dimensions,
            NetworkTopology::File(network) => return network.coordinates(hosts),
            _ => return Ok(Vec::new()),
        };
        let hosts = hosts.len() as u32;
        let places = dimensions.iter().fold(1, |places: u64, &size| places.saturating_mul(size.into()));
        if places < hosts.into() {
            return Err(PlacementError::SmallNetwork { places, hosts });
        }
        let coordinates = |host: u32| {
            let mut rest = host;
            let mut place = vec![0; dimensions.len()];
            for (coordinate, size) in place.iter_mut().zip(dimensions).rev() {
                (*coordinate, rest) = (rest % size, rest / size);
            }
            list(&place, ",")
        };
        Ok((0..hosts).map(coordinates).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DIMENSIONS_MAX;

    #[test]
    fn networks_have_names() {
        assert_eq!("complete".parse(), Ok(NetworkTopology::Complete { levels: 1 }));
        assert_eq!("hypercube".parse(), Ok(NetworkTopology::Hypercube));
        assert_eq!("cart:4".parse(), Ok(NetworkTopology::Cartesian(vec![4])));
        assert_eq!("cart:4x4x2".parse(), Ok(NetworkTopology::Cartesian(vec![4, 4, 2])));
        for wrong in ["", "cart", "cart:", "cart:4x", "cart:0", "cart:-1x2", "cart:1x1x1x1x1x1x1x1x1", "ring"]
        {
            assert_eq!(wrong.parse::<NetworkTopology>(), Err(NetworkError::Unknown), "{wrong}");
        }
    }

    #[test]
    fn hosts_take_the_places_of_a_cartesian_network_in_order() {
        let network = NetworkTopology::Cartesian(vec![2, 3]);
        assert_eq!(network.coordinates(&["n"; 5]).unwrap(), ["0,0", "0,1", "0,2", "1,0", "1,1"]);
        assert_eq!(
            network.job_attributes(),
            [
                ("physTopology", "hierarchical".to_owned()),
                ("physTopologyLevels", "cartesian,complete".to_owned()),
                ("cartDims", "2,3".to_owned()),
            ]
        );
        let error = network.coordinates(&["n"; 7]).unwrap_err().to_string();
        assert!(error.contains("6 places, but there are 7 hosts"), "{error}");
        // The product exceeds 64 bits.
        let huge = NetworkTopology::Cartesian(vec![u32::MAX; DIMENSIONS_MAX]);
        assert_eq!(huge.coordinates(&["n"; 2]).unwrap(), ["0,0,0,0,0,0,0,0", "0,0,0,0,0,0,0,1"]);
    }

    #[test]
    fn slurm_names_levels_of_switches() {
        for (pattern, levels) in [
            (None, "complete,complete"),
            (Some("node"), "complete,complete"),
            (Some("switch.switch.node"), "complete,complete,complete"),
        ] {
            let variables =
                |name: &str| pattern.filter(|_| name == "SLURM_TOPOLOGY_ADDR_PATTERN").map(Into::into);
            let environment = Environment { hostname: "n1".to_owned(), variables: &variables };
            let network = NetworkTopology::of_environment(&environment);
            assert_eq!(network.job_attributes()[1], ("physTopologyLevels", levels.to_owned()));
            assert!(network.coordinates(&["n"; 3]).unwrap().is_empty());
        }
    }
}
