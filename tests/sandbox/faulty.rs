//! `hydrant.wasm` with faults that words of clients bring on.

use std::fs;
use std::path::PathBuf;

use hydrant_tests::target_dir;

use crate::plugin;

/// The call fails before the server has had the input.
pub(crate) const TRAPS: &str = "(unreachable)";
/// The same behind it.
pub(crate) const TRAPS_LATER: &str =
    "(drop (call $server (local.get $len) (local.get $taken) (local.get $now))) (unreachable)";
/// The call never returns.
pub(crate) const LOOPS: &str = "(loop $again (br $again))";
/// The call returns no valid record.
pub(crate) const BABBLES: &str = "(return (i32.const 3))";
/// The server gets another word.
pub(crate) const ALTERS: &str = "(i32.store8 offset=7 (local.get $at) (i32.const 0x78))";

/// The plugin, with faults in the calls for inputs that contain these words.
pub(crate) fn faulty(name: &str, faults: &[(&[u8; 8], &str)]) -> PathBuf {
    let text = wasmprinter::print_file(plugin()).expect("the plugin is a module");
    let index_of = |export: &str| {
        let (_, behind) =
            text.split_once(&format!("(export \"{export}\" (func ")).expect("it has the export");
        behind.split_once(')').expect("an index follows").0
    };
    let (handle, address) = (index_of("hydrant_handle"), index_of("hydrant_input_address"));
    let at_word = |(word, fault): &(&[u8; 8], &str)| {
        let (word, fault) = (u64::from_le_bytes(**word), fault.replace("$server", handle));
        format!("(if (i64.eq (i64.load align=1 (local.get $at)) (i64.const {word})) (then {fault}))\n")
    };
    let faults: String = faults.iter().map(at_word).collect();
    let export = format!("(export \"hydrant_handle\" (func {handle}))");
    let rest = text.replacen(&export, "(export \"hydrant_handle\" (func $faulty))", 1);
    let rest = rest.trim_end().strip_suffix(')').expect("a module is in parentheses");
    let text = format!(
        r#"{rest}
        (func $faulty (param $len i32) (param $taken i32) (param $now i64) (result i32)
            (local $at i32)
            (local $end i32)
            (local.set $at (call {address}))
            (local.set $end (i32.add (local.get $at) (local.get $len)))
            (block $absent
                (loop $next
                    (br_if $absent (i32.gt_u (i32.add (local.get $at) (i32.const 8)) (local.get $end)))
                    {faults}
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br $next)))
            (call {handle} (local.get $len) (local.get $taken) (local.get $now))))"#
    );
    let dir = target_dir().join("faulty");
    fs::create_dir_all(&dir).expect("the build directory can be written to");
    let file = dir.join(format!("{name}.wasm"));
    fs::write(&file, wat::parse_str(text).expect("the text is a module")).expect("the folder was just made");
    file
}
