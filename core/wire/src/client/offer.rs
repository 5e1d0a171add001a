//! Offer of shared memory: location of a server's key-value log, for clients.

use core::fmt;
use core::str::FromStr;

/// Version of the offer, and of the layout of the log and its index.
const VERSION: &str = "2";

/// Line of text that describes a log in shared memory, and a job's space in it. The file holds the index, followed by
/// the log. The other fields are what a [`LogView`](super::LogView) of it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Path of the file, without commas.
    pub path: &'a str,
    /// Device and inode of the file, because the path may lead elsewhere in another namespace.
    pub file: (u64, u64),
    /// Number of words of the index.
    pub index: u32,
    /// Bytes of the log.
    pub log: u32,
    /// Hash seed of the log.
    pub seed: u32,
    /// Number of the job's space.
    pub space: u32,
    /// Job id, because processes of other jobs may inherit the offer.
    pub jobid: &'a str,
}

impl<'a> Offer<'a> {
    /// Parses the line. Returns `None` if it is malformed or of another version.
    pub fn parse(line: &'a str) -> Option<Offer<'a>> {
        let mut words = line.splitn(9, ',');
        if words.next()? != VERSION {
            return None;
        }
        let path = words.next()?;
        let file = (number(words.next()?)?, number(words.next()?)?);
        let mut next = || number(words.next()?);
        let (index, log, seed, space) = (next()?, next()?, next()?, next()?);
        Some(Offer { path, file, index, log, seed, space, jobid: words.next()? })
    }
}

fn number<N: FromStr>(word: &str) -> Option<N> {
    word.parse().ok()
}

impl fmt::Display for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offer { path, file: (device, inode), index, log, seed, space, jobid } = self;
        write!(f, "{VERSION},{path},{device},{inode},{index},{log},{seed},{space},{jobid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    proptest! {
        #[test]
        fn what_is_written_is_read(path in "[^,]*", file: (u64, u64), numbers: [u32; 4], jobid in ".*") {
            let [index, log, seed, space] = numbers;
            let offer = Offer { path: &path, file, index, log, seed, space, jobid: &jobid };
            let line = offer.to_string();
            prop_assert_eq!(Offer::parse(&line), Some(offer));
            // A line that ends before the job id is invalid.
            let cut = line.match_indices(',').nth(7).unwrap().0;
            prop_assert_eq!(line.get(..cut).and_then(Offer::parse), None);
        }

        #[test]
        fn any_text_is_read_without_harm(line in ".*") {
            prop_assert!(Offer::parse(&line).is_none_or(|offer| offer.to_string().starts_with(VERSION)));
        }
    }

    #[test]
    fn other_versions_and_numbers_are_none() {
        let line = "2,/proc/7/fd/3,1,2,16,4096,9,5,kvs_a,b";
        assert_eq!(Offer::parse(line).map(|offer| offer.jobid), Some("kvs_a,b"));
        for (from, to) in [("2,/", "1,/"), ("16", "x"), ("4096", "4294967296"), (",5,", ",-5,")] {
            assert_eq!(Offer::parse(&line.replacen(from, to, 1)), None, "{from} as {to}");
        }
    }
}
