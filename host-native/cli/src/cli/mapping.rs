//! Values of `--map-by` and `--rankmap`: order of hosts, objects of a machine, and the host of each rank.

use std::str::FromStr;

use hydrant_placement::{MapBy, Objects};

/// Value of `--map-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Order in which hosts get ranks.
    pub(super) hosts: Option<MapBy>,
    /// Objects of each machine that ranks are spread over.
    pub(super) objects: Option<Objects>,
    /// Cores of each rank.
    pub(super) cores: Option<u32>,
    /// Ranks of each host in one turn.
    pub(super) ppn: Option<u32>,
}

const EXPECTED: &str = "expected slot, node, block, core, hwthread, l1, l2, l3, numa, socket or machine, with a number as in core:2, or with :PE=N";

impl FromStr for Mapping {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Mapping, &'static str> {
        let text = text.to_ascii_lowercase();
        let mut mapping = Mapping::default();
        let mut words = text.split([':', ',']);
        let name = words.next().unwrap_or_default();
        match name {
            // Open MPI's modifiers alone, as in :OVERSUBSCRIBE.
            "" if text.len() > 1 => {}
            "ppr" => mapping.ppn = Some(ranks_of_node(&mut words)?),
            "slot" => mapping.hosts = Some(MapBy::Slot),
            "node" => mapping.hosts = Some(MapBy::Node),
            "block" => mapping.hosts = Some(MapBy::Block),
            _ => mapping.objects = Some(name.parse().map_err(|_| EXPECTED)?),
        }
        for word in words {
            let number = |text: &str| text.parse().ok().filter(|&number| number > 0).ok_or(EXPECTED);
            match (word.strip_prefix("pe="), &mut mapping.objects) {
                (Some(cores), _) => mapping.cores = Some(number(cores)?),
                // Ranks may share processors, and hosts take turns.
                (None, _) if ["oversubscribe", "span"].contains(&word) => {}
                (None, Some(objects)) => objects.count = number(word)?,
                (None, None) => return Err(EXPECTED),
            }
        }
        Ok(mapping)
    }
}

/// The words behind `ppr:`, a number and `node`.
fn ranks_of_node<'t>(words: &mut impl Iterator<Item = &'t str>) -> Result<u32, &'static str> {
    let ppn = words.next().and_then(|count| count.parse().ok()).filter(|&ppn| ppn > 0);
    ppn.filter(|_| words.next() == Some("node"))
        .ok_or("expected ppr:N:node; for ranks on each socket write -ppn N and -map-by socket")
}

/// Value of `--rankmap`: the position of each rank's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankMap(pub(super) Vec<u32>);

impl FromStr for RankMap {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RankMap, &'static str> {
        const EXPECTED: &str = "expected positions of hosts from 0, as in 0,0,1 or (0,2,4)";
        /// Most ranks in the text.
        const RANKS_MAX: u64 = 1 << 20;
        let mut map = Vec::new();
        let mut words = text.split(',');
        while let Some(word) = words.next() {
            let number = |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok()).ok_or(EXPECTED);
            let Some(first) = word.strip_prefix('(') else {
                map.push(number(Some(word))?);
                continue;
            };
            let (first, hosts) = (number(Some(first))?, number(words.next())?);
            let each = number(words.next().and_then(|word| word.strip_suffix(')')))?;
            if u64::from(hosts) * u64::from(each) > RANKS_MAX || first.checked_add(hosts).is_none() {
                return Err(EXPECTED);
            }
            map.extend((first..first + hosts).flat_map(|host| std::iter::repeat_n(host, each as usize)));
        }
        if map.is_empty() { Err(EXPECTED) } else { Ok(RankMap(map)) }
    }
}

#[cfg(test)]
mod tests {
    use hydrant_placement::Level;

    use super::*;

    #[test]
    fn rank_maps_of_hydra() {
        let of = |text: &str| text.parse::<RankMap>().map(|map| map.0);
        assert_eq!(of("1,1,0").unwrap(), [1, 1, 0]);
        assert_eq!(of("(1,2,2)").unwrap(), [1, 1, 2, 2]);
        assert_eq!(of("0,(1,2,1),0").unwrap(), [0, 1, 2, 0]);
        for wrong in
            ["", "x", "1,", "(1,2)", "(1,2,3", "-1", "(0,0,1)", "(0,65536,65536)", "(4294967295,1,1)"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn forms_of_hydra_and_open_mpi() {
        let of = |text: &str| text.parse::<Mapping>().unwrap();
        assert_eq!(of("node").hosts, Some(MapBy::Node));
        assert_eq!(of("block").hosts, Some(MapBy::Block));
        assert_eq!(of("SOCKET").objects, Some(Objects::one(Level::Socket)));
        assert_eq!(of("numa:2").objects, Some(Objects { level: Level::Numa, count: 2 }));
        let pe = of("package:PE=4:OVERSUBSCRIBE");
        assert_eq!((pe.objects, pe.cores), (Some(Objects::one(Level::Socket)), Some(4)));
        assert_eq!((of("slot:PE=2").hosts, of("slot:pe=2").cores), (Some(MapBy::Slot), Some(2)));
        assert_eq!(of("ppr:4:node").ppn, Some(4));
        let pe = of("ppr:4:node:PE=2");
        assert_eq!((pe.ppn, pe.cores), (Some(4), Some(2)));
        assert_eq!(of(":OVERSUBSCRIBE"), Mapping::default());
        assert_eq!(of(":PE=2").cores, Some(2));
        for wrong in [
            "",
            ":",
            ":ring",
            "ring",
            "node:2",
            "socket:0",
            "socket:x",
            "slot:pe=0",
            "ppr:2:socket",
            "ppr:0:node",
        ] {
            assert!(wrong.parse::<Mapping>().is_err(), "{wrong}");
        }
    }
}
