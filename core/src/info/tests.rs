//! Tests of the Info object.

use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::value::{boolean, integer, list, strip};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Dup,
}

fn step() -> impl Strategy<Value = Step> {
    // Few keys, so that they repeat. Some have the maximum length or more.
    let key = prop_oneof![
        8 => "[ab]{0,2}".prop_map(String::into_bytes),
        1 => (250_usize..260).prop_map(|len| vec![b'k'; len]),
    ];
    let value = prop_oneof![
        8 => "[x ]{0,12}".prop_map(String::into_bytes),
        1 => (1020_usize..1030).prop_map(|len| vec![b'v'; len]),
    ];
    prop_oneof![
        6 => (key.clone(), value).prop_map(|(key, value)| Step::Set(key, value)),
        2 => key.prop_map(Step::Delete),
        1 => Just(Step::Dup),
    ]
}

/// Model of the object: pairs in a vector.
#[derive(Default)]
struct Model {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    size: usize,
}

impl Model {
    fn place(&self, key: &[u8]) -> Option<usize> {
        self.pairs.iter().position(|(known, _)| known == key)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), InfoError> {
        if key.is_empty() || key.len() > 255 {
            return Err(InfoError::KeyLength);
        }
        if value.len() > 1024 {
            return Err(InfoError::ValueLength);
        }
        let mut pairs = self.pairs.clone();
        match self.place(key) {
            Some(at) => pairs[at].1 = value.to_vec(),
            None => pairs.push((key.to_vec(), value.to_vec())),
        }
        if pairs.iter().map(|(key, value)| 3 + key.len() + value.len()).sum::<usize>() > self.size {
            return Err(InfoError::Full(self.size as u32));
        }
        self.pairs = pairs;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), InfoError> {
        if key.is_empty() || key.len() > 255 {
            return Err(InfoError::KeyLength);
        }
        let at = self.place(key).ok_or(InfoError::NoKey)?;
        self.pairs.remove(at);
        Ok(())
    }

    fn check(&self, info: &Info<Vec<u8>>) {
        assert_eq!(info.nkeys() as usize, self.pairs.len());
        assert!(info.iter().eq(self.pairs.iter().map(|(key, value)| (&key[..], &value[..]))));
        for (n, (key, value)) in (0..).zip(&self.pairs) {
            assert_eq!(info.nth_key(n), Some(&key[..]));
            assert_eq!(info.get(key), Ok(Some(&value[..])));
            assert_eq!(info.get_valuelen(key), Ok(Some(value.len() as u32)));
        }
        assert_eq!(info.nth_key(info.nkeys()), None);
    }
}

proptest! {
    #[test]
    fn it_does_what_a_vector_does(
        size in prop_oneof![0_usize..40, 1000_usize..5000],
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut model = Model { pairs: Vec::new(), size };
        // The initial content of the memory does not matter.
        let mut info = Info::new(vec![0xa5; size]);
        for step in steps {
            match step {
                Step::Set(key, value) => prop_assert_eq!(info.set(&key, &value), model.set(&key, &value)),
                Step::Delete(key) => prop_assert_eq!(info.delete(&key), model.delete(&key)),
                Step::Dup => info = info.dup(vec![0x5a; size]).unwrap(),
            }
            model.check(&info);
        }
    }

    #[test]
    fn strings_are_cut_and_ended(text in "[a-z]{0,20}", room in 0_usize..24) {
        let mut buf = vec![b'#'; room];
        prop_assert_eq!(copy_string(text.as_bytes(), &mut buf) as usize, text.len() + 1);
        match room {
            0 => {}
            _ => {
                let len = text.len().min(room - 1);
                prop_assert_eq!(&buf[..len], &text.as_bytes()[..len]);
                prop_assert_eq!(buf[len], 0);
                prop_assert!(buf[len + 1..].iter().all(|&byte| byte == b'#'), "written beyond the end");
            }
        }
    }

    #[test]
    fn integers_come_back(number in any::<i64>(), before in 0_usize..3, behind in 0_usize..3, plus in any::<bool>()) {
        let sign = if plus && number >= 0 { "+" } else { "" };
        let text = std::format!("{}{sign}{number}{}", " ".repeat(before), " ".repeat(behind));
        prop_assert_eq!(integer::<i64>(text.as_bytes()), Some(number));
        prop_assert_eq!(integer::<i32>(text.as_bytes()), i32::try_from(number).ok());
    }

    #[test]
    fn no_text_is_too_strange(text in prop::collection::vec(any::<u8>(), 0..40)) {
        let commas = text.iter().filter(|&&byte| byte == b',').count();
        prop_assert!(list(&text).all(|element| element == strip(element)));
        prop_assert_eq!(list(&text).count(), if strip(&text).is_empty() { 0 } else { commas + 1 });
        prop_assert_eq!(boolean(&text).is_some(), [&b"true"[..], b"false"].contains(&strip(&text)));
        prop_assert!(integer::<i64>(&text).is_none() || text.iter().any(u8::is_ascii_digit));
    }
}

#[test]
fn a_get_leaves_an_empty_buffer_and_a_missing_key_alone() {
    let mut info = Info::new([0; 64]);
    info.set(b"wdir", b"/tmp").unwrap();
    assert_eq!(info.get_string(b"wdir", &mut []), Ok(Some(5)));
    let mut buf = *b"####";
    assert_eq!(info.get_string(b"Wdir", &mut buf), Ok(None));
    assert_eq!(&buf, b"####");
    assert_eq!(info.get_string(b"wdir", &mut buf), Ok(Some(5)));
    assert_eq!(&buf, b"/tm\0");
    assert_eq!(info.get_string(b"", &mut buf), Err(InfoError::KeyLength));
    assert_eq!(info.get_valuelen(&[b'k'; 256]), Err(InfoError::KeyLength));
}

#[test]
fn values_have_their_rules() {
    assert_eq!(
        [&b" true "[..], b"false", b"True", b"1", b""].map(boolean),
        [Some(true), Some(false), None, None, None]
    );
    for (text, number) in
        [("+7", Some(7)), (" -7 ", Some(-7)), ("+ 7", None), ("", None), ("+", None), ("7 8", None)]
    {
        assert_eq!(integer::<i32>(text.as_bytes()), number, "{text:?}");
    }
    assert_eq!(integer::<u8>(b"256"), None);
    assert_eq!(integer::<i64>(b"-9223372036854775808"), Some(i64::MIN));
    assert_eq!(integer::<i64>(b"9223372036854775808"), None);
    assert!(list(b" a, b c ,,d ").eq([&b"a"[..], b"b c", b"", b"d"]));
    assert_eq!(list(b"  ").count(), 0);
}

#[test]
fn the_environment_is_what_is_known_of_it() {
    let mut info = Info::new([0; 2200]);
    let args: [&[u8]; 2] = [b"-n", b"12"];
    let known = Environment { command: b"./a.out", args: &args, maxprocs: 120, ..Environment::default() };
    known.set(&mut info).unwrap();
    let pairs: [(&[u8], &[u8]); 3] = [(b"command", b"./a.out"), (b"argv", b"-n 12"), (b"maxprocs", b"120")];
    assert!(info.iter().eq(pairs));
    let long = [b'x'; 1025];
    let (longest, wdir) = ([&long[..1000], &long[..24]], &long[..1024]);
    let mut info = Info::new([0; 2200]);
    Environment { args: &longest, wdir: &long, ..Environment::default() }.set(&mut info).unwrap();
    assert_eq!(info.nkeys(), 0, "an argument list of 1,025 bytes, and a directory of as many");
    let known = Environment { args: &[&long[..1000], &long[..23]], wdir, ..Environment::default() };
    known.set(&mut info).unwrap();
    assert_eq!((info.nkeys(), info.get_valuelen(b"argv")), (2, Ok(Some(1024))));
    assert_eq!(known.set(&mut Info::new([0; 1040])), Err(InfoError::Full(1040)));
}
