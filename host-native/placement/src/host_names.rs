//! Attributes of a job with the names of its hosts.

use std::collections::BTreeMap;

use hydrant_core::limits::{HOSTS_ATTR_PREFIX, HOSTS_EACH, VALUE_MAX};

/// The [attributes](HOSTS_ATTR_PREFIX) of a job whose nodes have these numbers and names of hosts. The first name of a node counts.
///
/// ```
/// let attributes = hydrant_placement::host_attributes([(1, "a"), (2, "b"), (34, "f")]);
/// let expected = [("pmix.hname.0", ",a,b"), ("pmix.hname.1", ",,f")];
/// assert!(attributes.eq(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
/// ```
pub fn host_attributes<'h>(
    hosts: impl IntoIterator<Item = (u32, &'h str)>,
) -> impl Iterator<Item = (String, String)> {
    let mut attributes: BTreeMap<u32, [&str; HOSTS_EACH as usize]> = BTreeMap::new();
    for (node, host) in hosts {
        let name = &mut attributes.entry(node / HOSTS_EACH).or_default()[(node % HOSTS_EACH) as usize];
        if name.is_empty() {
            *name = host;
        }
    }
    attributes.into_iter().flat_map(|(number, names)| {
        let count = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        let mut parts: Vec<String> = Vec::new();
        for name in &names[..count] {
            match parts.last_mut() {
                Some(part) if part.len() + 1 + name.len() <= VALUE_MAX as usize => {
                    part.push(',');
                    part.push_str(name);
                }
                _ => parts.push((*name).to_owned()),
            }
        }
        let name = format!("{HOSTS_ATTR_PREFIX}{number}");
        parts.into_iter().enumerate().map(move |(part, names)| (attribute_part(&name, part), names))
    })
}

/// Name of a part of an attribute that is too long for one value. The first has the name of the attribute, as
/// [hosts](HOSTS_ATTR_PREFIX) and texts have it.
pub fn attribute_part(name: &str, part: usize) -> String {
    if part == 0 { name.to_owned() } else { format!("{name}.{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HOST_NAME_MAX;

    #[test]
    fn long_names_are_in_parts_of_a_value() {
        let name = "n".repeat(HOST_NAME_MAX);
        let attributes = host_attributes([5, 6, 7, 8, 10, 32].map(|node| (node, &*name)));
        let attributes: Vec<_> = attributes.map(|(key, value)| (key, value.len())).collect();
        let expected = [
            ("pmix.hname.0", 5 + 4 * (HOST_NAME_MAX + 1)),
            ("pmix.hname.0.1", HOST_NAME_MAX),
            ("pmix.hname.1", HOST_NAME_MAX),
        ];
        assert_eq!(attributes, expected.map(|(key, len)| (key.to_owned(), len)));
    }

    #[test]
    fn nodes_without_names_have_no_attribute() {
        assert_eq!(host_attributes([(0, ""), (5, "")]).count(), 0);
        let first: Vec<_> = host_attributes([(3, ""), (3, "a"), (3, "b")]).collect();
        assert_eq!(first, [("pmix.hname.0".to_owned(), ",,,a".to_owned())]);
    }
}
