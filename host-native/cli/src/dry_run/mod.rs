//! Text of `--dry-run`: programs, hosts, ranks, the tree of daemons and their start commands.

mod document;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

use hydrant_control::format_ranges;
use hydrant_core::peer::tree::Tree;
use hydrant_overlay::daemon_program;
use hydrant_placement::{
    Binding, Bootstrap, Deployment, Environment, Host, Location, Node, RankRange, shell_quote,
};
use hydrant_run::RunError;
use hydrant_run::plan::{Plan, Program};
use hydrant_start::Bindings;

/// The word that makes `hydrant` a daemon.
const DAEMON: &str = "daemon";

/// Describes what [`run`](hydrant_run::run) would do, as text or as JSON, and starts nothing.
///
/// # Errors
/// The job cannot be placed, or its process mapping is too long.
pub fn dry_run(plan: &mut Plan) -> Result<String, RunError> {
    let environment = Environment::current();
    let location = plan.locate(&environment)?;
    let bootstrap = match &location {
        Location::Local => &Bootstrap::Local,
        Location::Nodes(deployment) => &deployment.bootstrap,
    };
    let hydrant = daemon_program(plan.options.cluster.remote_hydrant.as_ref(), bootstrap)?;
    match plan.options.json {
        Some(_) => document::describe(plan, &location, &environment, &hydrant),
        None => describe(plan, &location, &environment, &hydrant),
    }
}

/// Describes programs, hosts, ranks, the tree of daemons, and how the daemons are started. `hydrant` is the program that
/// the daemons run.
fn describe(
    plan: &Plan,
    location: &Location,
    environment: &Environment<'_>,
    hydrant: &OsStr,
) -> Result<String, RunError> {
    let mut text = String::new();
    write_programs(&mut text, plan);
    let Plan { settings, options, .. } = plan;
    let _ = writeln!(text, "binding: {}", settings.bind);
    if let Some(gpus) = settings.gpus_per_rank {
        let _ = writeln!(text, "GPUs: {gpus} for each rank");
    }
    if let Some(note) = options.cluster.placement.surplus_nodes(plan.size()) {
        let _ = writeln!(text, "note: {note}");
    }
    match location {
        Location::Local => {
            let (host, ranks) = (&environment.hostname, plan.size());
            let _ = writeln!(text, "hosts: this machine, {host}, alone: {}", rank_range(0, ranks));
            let _ = writeln!(text, "mapping: (vector,(0,1,{ranks}))");
            write_bindings(&mut text, &settings.bind, ranks)?;
        }
        Location::Nodes(deployment) => write_nodes(&mut text, plan, deployment, environment, hydrant)?,
    }
    text.push_str("Nothing was started (--dry-run).\n");
    Ok(text)
}

/// Describes the binding of each rank on this machine. Other hosts choose when they start their ranks.
fn write_bindings(text: &mut String, binding: &Binding, ranks: u32) -> Result<(), RunError> {
    if *binding == Binding::default() {
        return Ok(());
    }
    let bindings = Bindings::new(binding, &[])?;
    for rank in 0..ranks {
        let _ = writeln!(text, "  rank {rank}: {}", bindings.describe(rank));
    }
    if let Some(shared) = bindings.shared(&(0..ranks).collect::<Vec<_>>()) {
        let _ = writeln!(text, "note: {shared}");
    }
    Ok(())
}

fn write_programs(text: &mut String, plan: &Plan) {
    let _ = writeln!(text, "{} in all", plural(plan.size(), "rank"));
    let mut first = 0;
    for (appnum, program) in plan.programs.iter().enumerate() {
        let Program { ranks, command, args, .. } = program;
        let words: Vec<OsString> = std::iter::once(command).chain(args).cloned().collect();
        let _ = writeln!(text, "program {appnum}: {}: {}", rank_range(first, *ranks), command_line(&words));
        first += ranks;
    }
}

fn write_nodes(
    text: &mut String,
    plan: &Plan,
    deployment: &Deployment,
    environment: &Environment<'_>,
    hydrant: &OsStr,
) -> Result<(), RunError> {
    let options = &plan.options.cluster;
    let Deployment { resource_manager, job_map, unused, bootstrap } = deployment;
    let job = match resource_manager {
        Some(manager) => format!(", of this {} job", manager.name()),
        None => String::new(),
    };
    let _ = writeln!(text, "hosts: {}{job}", job_map.nodes().len() + unused.len());
    for (number, node) in (1u32..).zip(job_map.nodes()) {
        let ranks = ranks_of(node, plan.programs.len() > 1);
        let board = options.boards.of_host(&node.host.name);
        let board = board.map_or_else(String::new, |board| format!(", served by board {board}"));
        let _ = writeln!(text, "  node {number}: {}: {ranks}{board}", host_line(&node.host));
    }
    for (number, host) in (job_map.nodes().len() + 1..).zip(unused) {
        let _ = writeln!(
            text,
            "  node {number}: {}: no ranks, no daemon until a spawn needs it",
            host_line(host)
        );
    }
    if let Some(note) = job_map.oversubscription() {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "mapping: {}", job_map.process_mapping()?);
    write_tree(text, job_map.tree(plan.radix(deployment)));
    let iface = options.iface.as_deref().map_or_else(String::new, |iface| format!(", links by {iface}"));
    let seconds = options.heartbeat.as_secs_f64();
    let _ = writeln!(text, "bootstrap: {}{iface}, heartbeat {seconds} s", bootstrap.name());
    let daemon = [hydrant.to_owned(), DAEMON.into()];
    let hosts: Vec<Host> = job_map.nodes().iter().map(|node| node.host.clone()).collect();
    let (program, args) = (options.bootstrap_exec.as_deref(), &options.bootstrap_args);
    if let Some(command) = bootstrap.step_command(program, args, &hosts, &daemon) {
        let _ = writeln!(text, "  all nodes: {}", command_line(&command));
        return Ok(());
    }
    for (number, node) in (1u32..).zip(job_map.nodes()) {
        let command = bootstrap.command(program, args, environment, &node.host, &daemon);
        let _ = writeln!(text, "  node {number}: {}", command_line(&command));
    }
    Ok(())
}

fn write_tree(text: &mut String, tree: Tree) {
    let _ = writeln!(text, "tree: radix {}, depth {}; node 0 is this process", tree.radix(), tree.depth());
    for number in 0..tree.nodes() {
        let children: Vec<String> = tree.children(number).map(|subtree| subtree.start.to_string()).collect();
        let parent = tree.parent(number).map_or_else(String::new, |parent| format!(" parent {parent}"));
        let children =
            if children.is_empty() { String::new() } else { format!(" children {}", children.join(" ")) };
        let _ = writeln!(text, "  node {number}:{parent}{children}");
    }
}

fn host_line(host: &Host) -> String {
    let mut line = host.name.clone();
    if let Some(user) = &host.user {
        let _ = write!(line, ", user {user}");
    }
    if let Some(slots) = host.slots {
        let _ = write!(line, ", {}", plural(slots, "slot"));
    }
    if let Some(max_slots) = host.max_slots {
        let _ = write!(line, ", at most {max_slots}");
    }
    line
}

/// A command on one line, quoted for a shell, with control characters escaped.
fn command_line(words: &[OsString]) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    shell_quote(words).to_string_lossy().chars().map(escape).collect()
}

/// The ranks of a node. If the job has several programs, the ranks of each program are listed separately.
fn ranks_of(node: &Node, has_several_programs: bool) -> String {
    let of_program = |ranges: &[RankRange]| -> String {
        let numbers: Vec<_> = ranges.iter().map(|range| (range.first, range.count)).collect();
        let is_one = ranges.len() == 1 && ranges[0].count == 1;
        let text = format!("{} {}", if is_one { "rank" } else { "ranks" }, format_ranges(&numbers));
        if has_several_programs { format!("{text} of program {}", ranges[0].program) } else { text }
    };
    let programs = node.rank_ranges.chunk_by(|a, b| a.program == b.program);
    let text = programs.map(of_program).collect::<Vec<_>>().join("; ");
    if text.is_empty() { "no ranks".to_owned() } else { text }
}

fn rank_range(first: u32, count: u32) -> String {
    format!("{} {}", if count == 1 { "rank" } else { "ranks" }, format_ranges(&[(first, count)]))
}

fn plural(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
