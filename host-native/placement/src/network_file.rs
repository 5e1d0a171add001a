//! File that describes the network between hosts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{NetworkError, PlacementError};
use crate::hostfile::read_file;
use crate::hostlist::expand;
use crate::limits::DIMENSIONS_MAX;

/// Maximum number of levels.
const LEVELS_MAX: usize = 16;
/// Maximum length of the name of a level in bytes.
const LEVEL_MAX: usize = 32;

/// Network of a file: its levels, and the places of hosts in a Cartesian level.
///
/// A line is `levels cartesian,complete`, `dims 4x4x2`, or a host or several in short form with coordinates, `n[1-2] 0,3,1`.
/// The levels begin at the top, as pmi2.h orders them. `#` starts a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFile {
    file: PathBuf,
    levels: Vec<String>,
    dimensions: Vec<u32>,
    /// Coordinates of each host.
    places: BTreeMap<String, Vec<u32>>,
}

impl NetworkFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has an invalid line.
    pub fn read(file: &Path) -> Result<NetworkFile, NetworkError> {
        let unreadable = |why: String| NetworkError::Unreadable { file: file.to_owned(), why };
        let text = read_file(file).map_err(|why| unreadable(why.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| unreadable("not UTF-8".to_owned()))?;
        NetworkFile::parse(file, &text)
    }

    /// Parses the text of a file.
    fn parse(file: &Path, text: &str) -> Result<NetworkFile, NetworkError> {
        let mut network = NetworkFile {
            file: file.to_owned(),
            levels: Vec::new(),
            dimensions: Vec::new(),
            places: BTreeMap::new(),
        };
        let error = |line, why| NetworkError::Line { file: file.to_owned(), line, why };
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(name), Some(value), None) => {
                    network.add(name, value).map_err(|why| error(number, why))?
                }
                _ => return Err(error(number, "expected two words".to_owned())),
            }
        }
        if network.levels.is_empty() {
            return Err(error(text.lines().count().max(1), "the file has no line with levels".to_owned()));
        }
        network.check_places().map_err(|why| error(text.lines().count(), why))?;
        Ok(network)
    }

    /// Adds a line.
    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let twice = || format!("{name} is given twice");
        match name {
            "levels" if self.levels.is_empty() => self.levels = levels(value)?,
            "dims" if self.dimensions.is_empty() => {
                self.dimensions = dimensions(value).ok_or("expected up to 8 dimensions, as in 4x4x2")?;
            }
            "levels" | "dims" => return Err(twice()),
            hosts => {
                let place: Option<Vec<u32>> = value.split(',').map(|number| number.parse().ok()).collect();
                let place = place.ok_or("expected coordinates, as in 0,3,1")?;
                for host in expand(hosts).map_err(|error| error.to_string())? {
                    if self.places.insert(host, place.clone()).is_some() {
                        return Err(twice());
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that coordinates are within the dimensions.
    fn check_places(&self) -> Result<(), String> {
        for (host, place) in &self.places {
            let inside = place.iter().zip(&self.dimensions).all(|(coordinate, size)| coordinate < size);
            if place.len() != self.dimensions.len() || !inside {
                let dimensions = list(&self.dimensions, "x");
                return Err(format!(
                    "host {host} has the coordinates {}, and dims is '{dimensions}'",
                    list(place, ",")
                ));
            }
        }
        Ok(())
    }

    /// Attributes of the job: names of pmi2.h with their values.
    pub(crate) fn job_attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = match &self.levels[..] {
            [level] => vec![("physTopology", level.clone())],
            levels => {
                vec![("physTopology", "hierarchical".to_owned()), ("physTopologyLevels", levels.join(","))]
            }
        };
        if !self.dimensions.is_empty() {
            attributes.push(("cartDims", list(&self.dimensions, ",")));
        }
        attributes
    }

    /// `cartCoords` of each host, in their order. Empty without dimensions.
    ///
    /// # Errors
    /// [`PlacementError::NoPlace`].
    pub(crate) fn coordinates(&self, hosts: &[&str]) -> Result<Vec<String>, PlacementError> {
        if self.dimensions.is_empty() {
            return Ok(Vec::new());
        }
        let place = |host: &&str| {
            let missing = || PlacementError::NoPlace { host: (*host).to_owned(), file: self.file.clone() };
            Ok(list(self.places.get(*host).ok_or_else(missing)?, ","))
        };
        hosts.iter().map(place).collect()
    }
}

/// Parses names of levels with commas.
fn levels(text: &str) -> Result<Vec<String>, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_name = |name: &str| {
        (1..=LEVEL_MAX).contains(&name.len()) && name.bytes().all(fits) && name != "hierarchical"
    };
    let levels: Vec<String> = text.split(',').map(str::to_owned).collect();
    match levels.len() <= LEVELS_MAX && levels.iter().all(|level| is_name(level)) {
        true => Ok(levels),
        false => Err("expected levels, as in cartesian,complete".to_owned()),
    }
}

/// Parses `4x4x2`. None unless there are up to [`DIMENSIONS_MAX`] positive numbers.
pub(crate) fn dimensions(text: &str) -> Option<Vec<u32>> {
    let positive = |text: &str| text.parse().ok().filter(|&dimension| dimension > 0);
    let dimensions: Option<Vec<u32>> = text.split('x').map(positive).collect();
    dimensions.filter(|dimensions| dimensions.len() <= DIMENSIONS_MAX)
}

/// Numbers with a text between them.
pub(crate) fn list(numbers: &[u32], between: &str) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetworkFile, String> {
        NetworkFile::parse(Path::new("net"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_gives_places_to_hosts() {
        let text = "# two racks\nlevels cartesian,complete\ndims 2x3 # torus\n\nn[1-2] 0,1\nn3 1,2\n";
        let network = parse(text).unwrap();
        assert_eq!(
            network.job_attributes(),
            [
                ("physTopology", "hierarchical".to_owned()),
                ("physTopologyLevels", "cartesian,complete".to_owned()),
                ("cartDims", "2,3".to_owned()),
            ]
        );
        assert_eq!(network.coordinates(&["n3", "n1"]).unwrap(), ["1,2", "0,1"]);
        let error = network.coordinates(&["n1", "n4"]).unwrap_err().to_string();
        assert!(error.starts_with("host n4 has no coordinates in net"), "{error}");
        let flat = parse("levels dragonfly").unwrap();
        assert_eq!(flat.job_attributes(), [("physTopology", "dragonfly".to_owned())]);
        assert!(flat.coordinates(&["n1"]).unwrap().is_empty());
    }

    #[test]
    fn invalid_lines_are_named() {
        for (text, error) in [
            ("", "net line 1: the file has no line with levels"),
            ("levels", "net line 1: expected two words"),
            ("levels a,b\nn1 0,0 x", "net line 2: expected two words"),
            ("levels a,,b", "net line 1: expected levels"),
            ("levels a;b", "net line 1: expected levels"),
            ("levels hierarchical", "net line 1: expected levels"),
            ("levels a\nlevels b", "net line 2: levels is given twice"),
            ("levels a\ndims 2x", "net line 2: expected up to 8 dimensions"),
            ("levels a\ndims 2\nn1 x", "net line 3: expected coordinates"),
            ("levels a\ndims 2\nn1 0\nn1 1", "net line 4: n1 is given twice"),
            ("levels a\ndims 2\nn[1 0", "net line 3: unbalanced bracket"),
            ("levels a\ndims 2\nn1 2", "net line 3: host n1 has the coordinates 2, and dims is '2'"),
            ("levels a\nn1 0", "net line 2: host n1 has the coordinates 0, and dims is ''"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.starts_with(error), "{text:?}: {wrong}");
        }
        let missing = NetworkFile::read(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /no/such/file: "), "{missing}");
    }
}
