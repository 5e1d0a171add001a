//! What `--dry-run` prints.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

use super::bootstrap::quoted;
use super::{JobMap, Location, Node, Share, Surroundings};
use crate::error::RunError;
use crate::plan::{Bind, Plan, Program};

/// The word that makes `hydrant` a daemon.
const DAEMON: &str = "daemon";

/// The plan in words: programs, hosts, ranks, the tree of daemons and how they are started. `hydrant` is the file that
/// the daemons run.
///
/// # Errors
/// [`RunError::Mapping`] where the job could not run for it.
pub fn describe(
    plan: &Plan,
    location: &Location,
    around: &Surroundings<'_>,
    hydrant: &OsStr,
) -> Result<String, RunError> {
    let mut text = String::new();
    programs(&mut text, plan);
    let _ = writeln!(text, "binding: {}", binding(&plan.options.bind));
    match location {
        Location::Here => {
            let (host, ranks) = (&around.host, plan.size());
            let _ = writeln!(text, "hosts: this machine, {host}, alone: {}", range(0, ranks));
            let _ = writeln!(text, "mapping: (vector,(0,1,{ranks}))");
        }
        Location::Nodes(layout) => nodes(&mut text, plan, layout, around, hydrant)?,
    }
    text.push_str("Nothing was started (--dry-run).\n");
    Ok(text)
}

fn programs(text: &mut String, plan: &Plan) {
    let _ = writeln!(text, "{} in all", counted(plan.size(), "rank"));
    let mut first = 0;
    for (number, program) in plan.programs.iter().enumerate() {
        let Program { ranks, command, args, .. } = program;
        let words: Vec<OsString> = std::iter::once(command).chain(args).cloned().collect();
        let _ = writeln!(text, "program {number}: {}: {}", range(first, *ranks), line(&words));
        first += ranks;
    }
}

fn nodes(
    text: &mut String,
    plan: &Plan,
    layout: &JobMap,
    around: &Surroundings<'_>,
    hydrant: &OsStr,
) -> Result<(), RunError> {
    let options = &plan.options.cluster;
    let placement = &layout.placement;
    let by = match layout.batch {
        Some(batch) => format!(", of this {} job", batch.name()),
        None => String::new(),
    };
    let _ = writeln!(text, "hosts: {}{by}", placement.nodes().len());
    for (number, node) in (1u32..).zip(placement.nodes()) {
        let _ =
            writeln!(text, "  node {number}: {}: {}", host_line(node), shares(node, plan.programs.len() > 1));
    }
    if let Some(notice) = placement.notice() {
        let _ = writeln!(text, "note: {notice}");
    }
    let _ = writeln!(text, "mapping: {}", placement.mapping()?);
    let tree = placement.tree(options.radix);
    let _ = writeln!(text, "tree: radix {}, depth {}; node 0 is this process", tree.radix(), tree.depth());
    for number in 0..tree.nodes() {
        let children: Vec<String> = tree.children(number).map(|subtree| subtree.start.to_string()).collect();
        let parent = tree.parent(number).map_or_else(String::new, |parent| format!(" parent {parent}"));
        let children =
            if children.is_empty() { String::new() } else { format!(" children {}", children.join(" ")) };
        let _ = writeln!(text, "  node {number}:{parent}{children}");
    }
    let iface = options.iface.as_deref().map_or_else(String::new, |iface| format!(", links by {iface}"));
    let seconds = options.heartbeat.as_secs_f64();
    let _ = writeln!(text, "bootstrap: {}{iface}, heartbeat {seconds} s", layout.bootstrap.name());
    for (number, node) in (1u32..).zip(placement.nodes()) {
        let daemon = [hydrant.to_owned(), DAEMON.into()];
        let command =
            layout.bootstrap.command(options.bootstrap_exec.as_deref(), around, &node.host, &daemon);
        let _ = writeln!(text, "  node {number}: {}", line(&command));
    }
    Ok(())
}

fn host_line(node: &Node) -> String {
    let mut line = node.host.name.clone();
    if let Some(user) = &node.host.user {
        let _ = write!(line, ", user {user}");
    }
    if let Some(slots) = node.host.slots {
        let _ = write!(line, ", {}", counted(slots, "slot"));
    }
    if let Some(most) = node.host.max_slots {
        let _ = write!(line, ", at most {most}");
    }
    line
}

/// A command on one line, as a shell would read it but for control characters, which are written out.
fn line(words: &[OsString]) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    quoted(words).to_string_lossy().chars().map(shown).collect()
}

/// The ranks of a node, each program's for itself where there are several.
fn shares(node: &Node, several: bool) -> String {
    let of_program = |shares: &[Share]| -> String {
        let ranges: Vec<String> = shares.iter().map(|share| numbers(share.first, share.count)).collect();
        let one = shares.len() == 1 && shares[0].count == 1;
        let text = format!("{} {}", if one { "rank" } else { "ranks" }, ranges.join(","));
        if several { format!("{text} of program {}", shares[0].program) } else { text }
    };
    let programs = node.shares.chunk_by(|a, b| a.program == b.program);
    let text = programs.map(of_program).collect::<Vec<_>>().join("; ");
    if text.is_empty() { "no ranks".to_owned() } else { text }
}

fn range(first: u32, count: u32) -> String {
    format!("{} {}", if count == 1 { "rank" } else { "ranks" }, numbers(first, count))
}

fn numbers(first: u32, count: u32) -> String {
    match count {
        1 => first.to_string(),
        _ => format!("{first}-{}", first + count.saturating_sub(1)),
    }
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// As `--bind-to` is written.
fn binding(bind: &Bind) -> String {
    match bind {
        Bind::None => "none".to_owned(),
        Bind::Core => "core".to_owned(),
        Bind::Hwthread => "hwthread".to_owned(),
        Bind::User(sets) => {
            let set = |set: &Vec<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
            format!("user:{}", sets.iter().map(set).collect::<Vec<_>>().join(","))
        }
    }
}
