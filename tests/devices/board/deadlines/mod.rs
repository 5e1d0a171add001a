//! The most instructions that each kind of input costs the core on a Cortex-M3, and a budget that they stay below.
//!
//! The firmware's benchmark counts them in QEMU with `-icount`, which makes them the same on every machine. The inputs
//! are those of the model's random sequences, of directed ones that use up tables and wake all ranks at once, and of
//! captured exchanges.

mod directed;
mod kinds;
mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use hydrant_core::{Input, Limits, Output};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::qemu::Kind;
use crate::model;
use script::{Entry, Script};

/// Random sequences. Their seed is fixed.
const CASES: u32 = 60;
/// Sizes of the directed sequences' jobs.
const SIZES: [u32; 3] = [4, 8, 16];
/// QEMU's `-icount shift`: an instruction takes 2^7 ns, which is longer than a tick of the board's clock.
const SHIFT: u32 = 7;
/// Budget in instructions for inputs that are not listed in [`BUDGETS`].
const BUDGET: u32 = 40_000;
/// Budgets of kinds that may cost more: texts of which each byte is escaped cost up to 140 instructions a byte, and a ring
/// passes those of all ranks on at once. The fields of an unknown command are read as those of a put.
const BUDGETS: &[(&str, u32)] = &[
    ("several messages at once", 300_000),
    ("put", 130_000),
    ("put node attribute", 250_000),
    ("publish", 60_000),
    ("ring", 3_000_000),
    ("spawn (refused)", 150_000),
    ("unknown command", 130_000),
    ("PMIx commit", 80_000),
];

/// Starts the benchmark. Returns its output.
fn bench(elf: &Path, shift: u32, args: &str) -> String {
    let semihosting = format!("enable=on,target=native,arg=hydrant{args}");
    let qemu = Job::new("qemu-system-arm")
        .words("-display none -monitor none -serial null -nic none -M")
        .args([Kind::Lm3s6965evb.name(), "-icount", &format!("shift={shift}")])
        .args(["-semihosting-config", &semihosting, "-kernel"])
        .arg(elf);
    let outcome = qemu.run();
    outcome.code(0);
    outcome.stdout.clone()
}

/// The limits of the board.
fn limits(elf: &Path) -> Limits {
    let text = bench(elf, SHIFT, "");
    let text = text.trim();
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
    let bytes: Vec<u8> = (0..text.len()).step_by(2).map(digits).collect();
    postcard::from_bytes(&bytes).expect("limits")
}

/// All sequences.
fn script(limits: Limits) -> Script {
    let mut script = Script::new(limits);
    for size in SIZES {
        directed::write(&mut script, size);
    }
    directed::write_captured(&mut script);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for case in 0..CASES {
        let drawn = model::commands::case().new_tree(&mut runner).expect("nothing is filtered");
        let (setup, steps) = drawn.current();
        let (tape, _) = model::play(limits, &setup, &steps);
        script.begin(&format!("random {case}"), None);
        for entry in &tape.0 {
            let input: Input<'_> = postcard::from_bytes(&entry.input).expect("it was read back before");
            let said = entry.outputs.iter().map(|output| match postcard::from_bytes(output) {
                Ok(Output::Bytes { bytes, .. }) => bytes.len(),
                _ => 0,
            });
            let consumed = entry.result.map_or(0, |consumed| consumed.bytes as usize);
            script.input(entry.now, &input, consumed, said.sum());
        }
    }
    script
}

/// Budgets of Noise on a management connection: of the answer to a host, which multiplies twice on the curve, of a record
/// of 64 bytes and of the longest, and of a handshake that the board begins.
const NOISE: [u64; 4] = [5_000_000, 15_000, 60_000, 5_000_000];

#[test]
fn a_handshake_and_encrypted_records_keep_their_budgets() {
    if !Peer::Qemu.there() {
        return;
    }
    let elf = Kind::Lm3s6965evb.firmware("bench,pmix", false);
    let folder = Folder::new("handshake");
    let path = folder.path("first");
    let (_, first) = super::secret::host("0123456789abcdef");
    fs::write(&path, first).expect("there is room");
    let said = bench(&elf, 0, &format!(",arg=handshake,arg={path}"));
    let numbers: Vec<u64> = said.lines().map(|line| line.parse().expect("a number")).collect();
    let (hertz, ticks) = numbers.split_first().expect("the clock's frequency");
    // An instruction takes a nanosecond.
    let instructions: Vec<u64> = ticks.iter().map(|ticks| ticks * 1_000_000_000 / hertz).collect();
    hydrant_tests::tell(&format!(
        "instructions of a handshake, of two records and of a handshake that the board begins: {instructions:?}"
    ));
    assert_eq!(instructions.len(), NOISE.len());
    assert!(instructions.iter().zip(NOISE).all(|(&count, budget)| count <= budget), "{instructions:?}");
}

/// What was counted of a kind.
#[derive(Debug, Default)]
struct Counted {
    counts: Vec<u32>,
    most: u32,
    sequence: String,
    /// The most in directed sequences of each size.
    by_size: BTreeMap<u32, u32>,
}

impl Counted {
    fn median(&self) -> u32 {
        let mut counts = self.counts.clone();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied().unwrap_or_default()
    }

    /// Instructions that each further rank adds, if the cost grows with the ranks.
    fn per_rank(&self) -> Option<u32> {
        let (&few, &many) = (self.by_size.get(&SIZES[0])?, self.by_size.get(&SIZES[2])?);
        (many > few + few / 2).then(|| (many - few) / (SIZES[2] - SIZES[0]))
    }
}

/// Plays a script on the board.
fn count(elf: &Path, script: &Script) -> BTreeMap<&'static str, Counted> {
    let folder = Folder::new("deadlines");
    let path = folder.path("script");
    fs::write(&path, &script.bytes).expect("there is room");
    let said = bench(elf, SHIFT, &format!(",arg={path}"));
    let mut lines = said.lines();
    let hertz: u64 = lines.next().and_then(|hertz| hertz.parse().ok()).expect("the clock's frequency");
    let lines: Vec<(u64, usize)> = lines
        .map(|line| {
            let (ticks, bytes) = line.split_once(' ').expect("two numbers");
            (ticks.parse().expect("ticks"), bytes.parse().expect("bytes"))
        })
        .collect();
    assert_eq!(lines.len(), script.entries.len(), "a line for each input");
    let mut kinds = BTreeMap::<_, Counted>::new();
    for ((ticks, bytes), Entry { kind, sequence, ranks, said }) in lines.into_iter().zip(&script.entries) {
        assert_eq!(bytes, *said, "{sequence}: the board replies to {kind:?} as this machine's core");
        let Some(kind) = *kind else { continue };
        let instructions = u32::try_from((ticks * 1_000_000_000 / hertz) >> SHIFT).expect("a second at most");
        let counted = kinds.entry(kind).or_default();
        counted.counts.push(instructions);
        if instructions > counted.most {
            (counted.most, counted.sequence) = (instructions, sequence.clone());
        }
        if let Some(ranks) = *ranks {
            let most = counted.by_size.entry(ranks).or_default();
            *most = (*most).max(instructions);
        }
    }
    kinds
}

fn budget(kind: &str) -> u32 {
    BUDGETS.iter().find(|(of, _)| *of == kind).map_or(BUDGET, |&(_, budget)| budget)
}

const HEAD: &str = "| input | times | median | most | for each rank | budget | in |";

/// The table of the firmware's README.
fn table(kinds: &BTreeMap<&'static str, Counted>) -> String {
    let mut table = format!("{HEAD}\n|---|--:|--:|--:|--:|--:|---|\n");
    for kind in kinds::all() {
        let Some(counted @ Counted { counts, most, sequence, .. }) = kinds.get(kind) else { continue };
        let grows = counted.per_rank().map_or_else(String::new, |rank| rank.to_string());
        let (times, median, budget) = (counts.len(), counted.median(), budget(kind));
        let row =
            writeln!(table, "| {kind} | {times} | {median} | {most} | {grows} | {budget} | {sequence} |");
        row.expect("strings grow");
    }
    table
}

/// The part of the README that is the table.
fn written(readme: &str) -> &str {
    let start = readme.find(HEAD).expect("the README has the table");
    let rest = &readme[start..];
    &rest[..rest.find("\n\n").map_or(rest.len(), |end| end + 1)]
}

#[test]
fn each_kind_of_input_keeps_its_budget() {
    if !Peer::Qemu.there() {
        return;
    }
    let elf = Kind::Lm3s6965evb.firmware("bench,pmix", false);
    let script = script(limits(&elf));
    let kinds = count(&elf, &script);
    let missing: Vec<&str> = kinds::all().filter(|kind| !kinds.contains_key(kind)).collect();
    assert!(missing.is_empty(), "no input of these kinds: {missing:?}");
    let table = table(&kinds);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/README.md");
    let readme = fs::read_to_string(&path).expect("the firmware has a README");
    if std::env::var_os("HYDRANT_WRITE_DEADLINES").is_some() {
        fs::write(&path, readme.replace(written(&readme), &table)).expect("it is a file of the sources");
    }
    for (&kind, Counted { most, sequence, .. }) in &kinds {
        assert!(*most <= budget(kind), "{kind} in {sequence}: {most} instructions\n{table}");
    }
    // The README has the same kinds and budgets. Its counts are those of when it was written.
    let columns = |table: &str| -> Vec<(String, String)> {
        let rows = table.lines().skip(2).map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        rows.map(|row| (row[1].to_owned(), row[6].to_owned())).collect()
    };
    let readme = fs::read_to_string(&path).expect("the firmware has a README");
    let shown = columns(written(&readme));
    assert_eq!(shown, columns(&table), "HYDRANT_WRITE_DEADLINES writes the table");
}
