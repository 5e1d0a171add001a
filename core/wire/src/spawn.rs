//! Spawn requests, borrowed from their message.

use super::fields::{self, Pairs, need};
use super::scan;
use super::token::Text;
use crate::Refusal;

/// Spawn request: programs, and pairs for the key-value space of the new job.
///
/// The message was validated when it was decoded. Its counts match its content, so iteration does not fail.
#[derive(Clone, Copy)]
pub struct Spawn<'a> {
    source: Source<'a>,
}

/// Program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// The command to run.
    pub command: Text<'a>,
    /// Number of processes.
    pub maxprocs: u32,
    /// Arguments without the command. Each may be empty.
    pub args: &'a [Text<'a>],
    /// Info keys and values.
    pub info: &'a [(Text<'a>, Text<'a>)],
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Message(Message<'a>),
    Given { programs: &'a [Program<'a>], preput: &'a [(Text<'a>, Text<'a>)] },
}

#[derive(Clone, Copy)]
struct Message<'a> {
    pairs: Pairs<'a>,
    words: &'static Words,
    count: u32,
}

/// Names of the fields in a protocol.
struct Words {
    /// Start of the part of a program.
    part: &'static [u8],
    command: &'static [u8],
    maxprocs: &'static [u8],
    argc: &'static [u8],
    /// Prefix of arguments, and the number of the first one.
    arg: (&'static [u8], u32),
    infos: &'static [u8],
    info: (&'static [u8], &'static [u8]),
    preputs: &'static [u8],
    preput: (&'static [u8], &'static [u8]),
}

const BLOCKS: Words = Words {
    part: b"mcmd",
    command: b"execname",
    maxprocs: b"nprocs",
    argc: b"argcnt",
    arg: (b"arg", 1),
    infos: b"info_num",
    info: (b"info_key_", b"info_val_"),
    preputs: b"preput_num",
    preput: (b"preput_key_", b"preput_val_"),
};

const COUNTED: Words = Words {
    part: b"subcmd",
    command: b"subcmd",
    maxprocs: b"maxprocs",
    argc: b"argc",
    arg: (b"argv", 0),
    infos: b"infokeycount",
    info: (b"infokey", b"infoval"),
    preputs: b"preputcount",
    preput: (b"ppkey", b"ppval"),
};

impl<'a> Spawn<'a> {
    /// Creates a spawn for encoding. It has at least one program.
    pub const fn new(programs: &'a [Program<'a>], preput: &'a [(Text<'a>, Text<'a>)]) -> Spawn<'a> {
        Spawn { source: Source::Given { programs, preput } }
    }

    /// Decodes PMI-1 blocks, including `mcmd=spawn`.
    pub(super) fn blocks(body: &'a [u8]) -> Result<Spawn<'a>, Refusal> {
        let pairs = Pairs::block(body);
        let total = first(pairs, b"totspawns").map_or(Ok(1), fields::number)?;
        Spawn::checked(Message { pairs, words: &BLOCKS, count: total })
    }

    /// Decodes the part of a PMI-2 message after `cmd=spawn;`.
    pub(super) fn counted(pairs: Pairs<'a>) -> Result<Spawn<'a>, Refusal> {
        let count = pairs.clone().find(|(key, _)| *key == b"ncmds").map(|(_, value)| fields::number(value));
        Spawn::checked(Message { pairs, words: &COUNTED, count: need(count)?? })
    }

    fn checked(message: Message<'a>) -> Result<Spawn<'a>, Refusal> {
        let words = message.words;
        let head = message.head();
        check(words.preputs, head, Numbered::new(head, words.preput.0, Some(words.preput.1), 0))?;
        let mut programs = 0;
        for pairs in message.parts() {
            programs += 1;
            let part = SpawnProgram { source: Part::Message { pairs, words } };
            for field in [words.command, words.maxprocs] {
                need(first(pairs, field))?;
            }
            if part.command().is_empty() || part.maxprocs() == 0 {
                return Err(Refusal::BadField);
            }
            check(words.argc, pairs, Numbered::new(pairs, words.arg.0, None, words.arg.1))?;
            check(words.infos, pairs, Numbered::new(pairs, words.info.0, Some(words.info.1), 0))?;
        }
        match programs.cmp(&message.count) {
            core::cmp::Ordering::Less => Err(Refusal::MissingField),
            core::cmp::Ordering::Equal if programs > 0 => Ok(Spawn { source: Source::Message(message) }),
            _ => Err(Refusal::BadField),
        }
    }

    /// Returns the number of [`programs`](Spawn::programs), at least one.
    pub fn count(&self) -> u32 {
        match self.source {
            Source::Message(message) => message.count,
            Source::Given { programs, .. } => programs.len() as u32,
        }
    }

    /// Returns the programs in the order of their ranks.
    pub fn programs(&self) -> impl Iterator<Item = SpawnProgram<'a>> + use<'a> {
        let (message, given) = match self.source {
            Source::Message(message) => (Some(message), &[][..]),
            Source::Given { programs, .. } => (None, programs),
        };
        let parts = message.into_iter().flat_map(|message| {
            message
                .parts()
                .map(move |pairs| SpawnProgram { source: Part::Message { pairs, words: message.words } })
        });
        parts.chain(given.iter().map(|program| SpawnProgram { source: Part::Given(program) }))
    }

    /// Returns the pairs for the key-value space of the new job.
    pub fn preput(&self) -> impl Iterator<Item = (Text<'a>, Text<'a>)> + use<'a> {
        let (message, given) = match self.source {
            Source::Message(message) => (Some(message), &[][..]),
            Source::Given { preput, .. } => (None, preput),
        };
        let numbered = message.into_iter().flat_map(|message| {
            let (key, value) = message.words.preput;
            Numbered::new(message.head(), key, Some(value), 0)
        });
        numbered.chain(given.iter().copied())
    }
}

impl<'a> Message<'a> {
    /// Returns the fields of the whole request: PMI-1's first block, or the fields before the first program in PMI-2.
    fn head(&self) -> Pairs<'a> {
        if self.words.part == COUNTED.part {
            let before = Parts { rest: self.pairs, part: self.words.part }.start();
            return self.pairs.truncated(before);
        }
        self.parts().next().unwrap_or(self.pairs)
    }

    fn parts(&self) -> Parts<'a> {
        let mut parts = Parts { rest: self.pairs, part: self.words.part };
        parts.skip_to_start();
        parts
    }
}

/// Parts of a message, one for each program.
#[derive(Clone)]
struct Parts<'a> {
    rest: Pairs<'a>,
    part: &'static [u8],
}

impl<'a> Parts<'a> {
    /// Returns the number of bytes before the start of the next part.
    fn start(&self) -> usize {
        let mut pairs = self.rest;
        let all = pairs.rest().len();
        loop {
            let before = all - pairs.rest().len();
            match pairs.next() {
                Some((key, _)) if key == self.part => return before,
                Some(_) => {}
                None => return all,
            }
        }
    }

    fn skip_to_start(&mut self) {
        self.rest = self.rest.skipped(self.start());
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Pairs<'a>;

    fn next(&mut self) -> Option<Pairs<'a>> {
        let all = self.rest;
        self.rest.next()?;
        let first = all.rest().len() - self.rest.rest().len();
        let len = first + self.start();
        self.skip_to_start();
        Some(all.truncated(len))
    }
}

/// Program of a [`Spawn`].
#[derive(Clone, Copy)]
pub struct SpawnProgram<'a> {
    source: Part<'a>,
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Message { pairs: Pairs<'a>, words: &'static Words },
    Given(&'a Program<'a>),
}

impl<'a> SpawnProgram<'a> {
    /// Returns the command to run, which is not empty.
    pub fn command(&self) -> Text<'a> {
        match self.source {
            Part::Message { pairs, words } => first(pairs, words.command).unwrap_or(Text::plain(b"")),
            Part::Given(program) => program.command,
        }
    }

    /// Returns the number of processes, at least one.
    pub fn maxprocs(&self) -> u32 {
        match self.source {
            Part::Message { pairs, words } => {
                first(pairs, words.maxprocs).and_then(|text| fields::number(text).ok()).unwrap_or(0)
            }
            Part::Given(program) => program.maxprocs,
        }
    }

    /// Returns the arguments without the command. Each may be empty.
    pub fn args(&self) -> impl Iterator<Item = Text<'a>> + use<'a> {
        let (numbered, given) = match self.source {
            Part::Message { pairs, words } => {
                (Some(Numbered::new(pairs, words.arg.0, None, words.arg.1)), &[][..])
            }
            Part::Given(program) => (None, program.args),
        };
        numbered.into_iter().flatten().map(|(arg, _)| arg).chain(given.iter().copied())
    }

    /// Returns the info keys and values.
    pub fn info(&self) -> impl Iterator<Item = (Text<'a>, Text<'a>)> + use<'a> {
        let (numbered, given) = match self.source {
            Part::Message { pairs, words } => {
                (Some(Numbered::new(pairs, words.info.0, Some(words.info.1), 0)), &[][..])
            }
            Part::Given(program) => (None, program.info),
        };
        numbered.into_iter().flatten().chain(given.iter().copied())
    }
}

/// Returns the first value of a key.
fn first<'a>(mut pairs: Pairs<'a>, wanted: &[u8]) -> Option<Text<'a>> {
    pairs.find(|(key, _)| *key == wanted).map(|(_, value)| value)
}

/// Fields with consecutive numbers at their end: `arg1`, `arg2`, or `infokey0`, `infoval0`, …. Without a second name,
/// the second text is empty.
struct Numbered<'a> {
    pairs: Pairs<'a>,
    key: &'static [u8],
    value: Option<&'static [u8]>,
    next: u32,
}

impl<'a> Numbered<'a> {
    fn new(pairs: Pairs<'a>, key: &'static [u8], value: Option<&'static [u8]>, first: u32) -> Numbered<'a> {
        Numbered { pairs, key, value, next: first }
    }

    fn find(&mut self, name: &[u8]) -> Option<Text<'a>> {
        let number = self.next;
        let wanted = |key: &[u8]| key.strip_prefix(name).and_then(scan::number) == Some(number);
        self.pairs.find(|(key, _)| wanted(key)).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Numbered<'a> {
    type Item = (Text<'a>, Text<'a>);

    fn next(&mut self) -> Option<(Text<'a>, Text<'a>)> {
        let key = self.find(self.key)?;
        let value = match self.value {
            Some(name) => self.find(name)?,
            None => Text::plain(b""),
        };
        self.next = self.next.saturating_add(1);
        Some((key, value))
    }
}

/// Checks that the number of numbered fields equals the field `count`, or 0 without it.
fn check<'a>(count: &[u8], pairs: Pairs<'a>, numbered: Numbered<'a>) -> Result<(), Refusal> {
    let said = first(pairs, count).map_or(Ok(0), fields::number)?;
    let there = numbered.count();
    match u32::try_from(there).map_err(|_| Refusal::BadField)?.cmp(&said) {
        core::cmp::Ordering::Less => Err(Refusal::MissingField),
        core::cmp::Ordering::Equal => Ok(()),
        core::cmp::Ordering::Greater => Err(Refusal::BadField),
    }
}

impl PartialEq for SpawnProgram<'_> {
    fn eq(&self, other: &SpawnProgram<'_>) -> bool {
        self.command() == other.command()
            && self.maxprocs() == other.maxprocs()
            && self.args().eq(other.args())
            && self.info().eq(other.info())
    }
}

impl Eq for SpawnProgram<'_> {}

impl PartialEq for Spawn<'_> {
    fn eq(&self, other: &Spawn<'_>) -> bool {
        self.programs().eq(other.programs()) && self.preput().eq(other.preput())
    }
}

impl Eq for Spawn<'_> {}

impl core::fmt::Debug for SpawnProgram<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} x {}", self.command(), self.maxprocs())?;
        self.args().try_for_each(|arg| write!(f, " {arg:?}"))?;
        self.info().try_for_each(|(key, value)| write!(f, " {key:?}={value:?}"))
    }
}

impl core::fmt::Debug for Spawn<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Spawn {")?;
        self.programs().try_for_each(|program| write!(f, " ({program:?})"))?;
        self.preput().try_for_each(|(key, value)| write!(f, " {key:?}={value:?}"))?;
        f.write_str(" }")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Framing, next_frame};
    use crate::{Command, decode};
    use std::string::String;
    use std::vec::Vec;

    fn spawn(bytes: &[u8], framing: Framing) -> Result<Spawn<'_>, Refusal> {
        let frame = next_frame(bytes, framing).unwrap().unwrap();
        match decode(&frame).unwrap().command? {
            Command::Spawn(spawn) => Ok(spawn),
            other => panic!("{other:?}"),
        }
    }

    fn counted(body: &str) -> Result<Vec<String>, Refusal> {
        let message = std::format!("{:>6}cmd=spawn;{body}", body.len() + 10);
        spawn(message.as_bytes(), Framing::Counted).map(|spawn| told(&spawn))
    }

    fn blocks(body: &str) -> Result<Vec<String>, Refusal> {
        spawn(body.as_bytes(), Framing::Line).map(|spawn| told(&spawn))
    }

    fn told(spawn: &Spawn<'_>) -> Vec<String> {
        let preput = spawn.preput().map(|(key, value)| std::format!("{key:?}={value:?}"));
        preput.chain(spawn.programs().map(|program| std::format!("{program:?}"))).collect()
    }

    #[test]
    fn captured_messages() {
        // MPICH 4.0.2 counts six bytes too many: the rest of an earlier message follows.
        let bytes =
            b"179   cmd=spawn;ncmds=1;preputcount=1;ppkey0=PARENT_ROOT_PORT_NAME;ppval0=tag#0$description#vm\
            $port#43933$ifname#127.0.0.1$;subcmd=bin/spawnx_402;maxprocs=2;argc=0;infokeycount=0;0.1$;\0";
        let told = told(&spawn(bytes, Framing::Counted).unwrap());
        let port = "\"PARENT_ROOT_PORT_NAME\"=\"tag#0$description#vm$port#43933$ifname#127.0.0.1$\"";
        assert_eq!(told, [port, "\"bin/spawnx_402\" x 2"]);
    }

    // Shows: pmi2.h, Messages | `infokeycount`, `infokey%d`, `infoval%d` | pairs of info in a spawn | done
    // Also: libraries `pmi2::spawn::under_hydrant`
    #[test]
    fn several_programs() {
        let both = ["\"k\"=\"v w\"", "\"a\" x 2 \"\" \"x y\" \"wdir\"=\"/tmp\"", "\"b\" x 1"];
        let message = "ncmds=2;preputcount=1;ppkey0=k;ppval0=v w;subcmd=a;maxprocs=2;argc=2;argv0=;argv1=x y;\
            infokeycount=1;infokey0=wdir;infoval0=/tmp;subcmd=b;maxprocs=1;argc=0;infokeycount=0;";
        assert_eq!(counted(message).unwrap(), both);
        let lines = "mcmd=spawn\nnprocs=2\nexecname=a\ntotspawns=2\nspawnssofar=1\narg1=\narg2=x y\nargcnt=2\n\
            preput_num=1\npreput_key_0=k\npreput_val_0=v w\ninfo_num=1\ninfo_key_0=wdir\ninfo_val_0=/tmp\nendcmd\n\
            mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nargcnt=0\ninfo_num=0\nendcmd\n";
        assert_eq!(blocks(lines).unwrap(), both);
    }

    #[test]
    fn counts_are_checked() {
        for (body, refusal) in [
            ("subcmd=a;maxprocs=1;", Refusal::MissingField),
            ("ncmds=0;", Refusal::BadField),
            ("ncmds=x;subcmd=a;maxprocs=1;", Refusal::BadField),
            ("ncmds=2;subcmd=a;maxprocs=1;", Refusal::MissingField),
            ("ncmds=1;subcmd=a;maxprocs=1;subcmd=b;maxprocs=1;", Refusal::BadField),
            ("ncmds=1;subcmd=a;", Refusal::MissingField),
            ("ncmds=1;subcmd=a;maxprocs=0;", Refusal::BadField),
            ("ncmds=1;subcmd=a;maxprocs=-1;", Refusal::BadField),
            ("ncmds=1;subcmd=;maxprocs=1;", Refusal::BadField),
            ("ncmds=1;subcmd=a;maxprocs=1;argc=1;", Refusal::MissingField),
            ("ncmds=1;subcmd=a;maxprocs=1;argc=4294967295;argv0=x;", Refusal::MissingField),
            ("ncmds=1;subcmd=a;maxprocs=1;argc=1;argv0=x;argv1=y;", Refusal::BadField),
            ("ncmds=1;subcmd=a;maxprocs=1;infokeycount=1;infokey0=k;", Refusal::MissingField),
            ("ncmds=1;preputcount=1;ppkey0=k;subcmd=a;maxprocs=1;ppval0=v;", Refusal::MissingField),
        ] {
            assert_eq!(counted(body), Err(refusal), "{body}");
        }
        for (lines, refusal) in [
            ("mcmd=spawn\nexecname=a\nendcmd\n", Refusal::MissingField),
            ("mcmd=spawn\nnprocs=1\nendcmd\n", Refusal::MissingField),
            ("mcmd=spawn\nnprocs=1\nexecname=a\nargcnt=x\nendcmd\n", Refusal::BadField),
            ("mcmd=spawn\nnprocs=1\nexecname=a\npreput_num=1\nendcmd\n", Refusal::MissingField),
        ] {
            assert_eq!(blocks(lines), Err(refusal), "{lines}");
        }
    }
}
