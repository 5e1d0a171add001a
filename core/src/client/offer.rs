//! Offer of shared memory: where clients find the key-value log of their server.

use core::fmt;
use core::str::FromStr;

/// The form of the offer, and of the log and its index.
const VERSION: &str = "1";

/// A log in memory that is shared, and a job's space in it, in one line of text: a file that holds the index and right
/// behind it the log, with what a [`LogView`](super::LogView) of it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Where the file can be opened; without commas.
    pub path: &'a str,
    /// Its device and inode: a path may lead elsewhere in another namespace.
    pub file: (u64, u64),
    /// Slots of the index.
    pub index: u32,
    /// Bytes of the log.
    pub log: u32,
    /// The hash seed.
    pub seed: u32,
    /// The number of the job's space.
    pub space: u32,
    /// The job's name: others may come by the offer, who have no business with it.
    pub jobid: &'a str,
}

impl<'a> Offer<'a> {
    /// Reads the line; nothing where it is none, or of another version.
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
            // Cut anywhere before the job's name it is none.
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
        let line = "1,/proc/7/fd/3,1,2,16,4096,9,5,kvs_a,b";
        assert_eq!(Offer::parse(line).map(|offer| offer.jobid), Some("kvs_a,b"));
        for (from, to) in [("1,/", "2,/"), ("16", "x"), ("4096", "4294967296"), (",5,", ",-5,")] {
            assert_eq!(Offer::parse(&line.replacen(from, to, 1)), None, "{from} as {to}");
        }
    }
}
