//! Host lists of the command line and of resource managers, and host files.
#![no_main]

use hydrant_placement::hostfile::{self, Format};
use hydrant_placement::{Hosts, JobMap, MappingPolicy, hostlist};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let list = std::str::from_utf8(text).unwrap_or_default();
    let hosts = match choice % 6 {
        0 => Hosts::parse(list).ok(),
        1 => {
            let _ = hostlist::expand(list);
            return;
        }
        2 => {
            let _ = hostlist::expand_counts(list);
            return;
        }
        3 => hostfile::parse(text, Format::Words).ok(),
        4 => hostfile::parse(text, Format::Slots).ok(),
        _ => hostfile::parse(text, Format::Columns).ok(),
    };
    let Some(hosts) = hosts.filter(|hosts| !hosts.is_empty() && hosts.len() < 1000) else { return };
    let ranks = u32::from(choice) + 1;
    if let Ok(map) = JobMap::new(&hosts, &[ranks], MappingPolicy::default()) {
        assert_eq!(map.ranks(), ranks, "ranks that have no host");
        let _ = map.process_mapping();
    }
});
