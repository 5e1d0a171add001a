//! JSON of `--dry-run`.

use std::ffi::OsStr;

use hydrant_placement::{Bootstrap, Deployment, Environment, Location, Node, process_mapping};
use hydrant_run::RunError;
use hydrant_run::json;
use hydrant_run::plan::Plan;
use hydrant_status::record::Text;
use serde::Serialize;

#[derive(Serialize)]
struct PlanDocument {
    ranks: u32,
    programs: Vec<Program>,
    binding: String,
    mapping: String,
    resource_manager: Option<&'static str>,
    bootstrap: &'static str,
    tree: Option<Tree>,
    hosts: Vec<Host>,
}

#[derive(Serialize)]
struct Program {
    command: Text,
    args: Vec<Text>,
    first: u32,
    ranks: u32,
}

#[derive(Serialize)]
struct Tree {
    radix: u32,
    depth: u32,
}

#[derive(Serialize)]
struct Host {
    node: u32,
    name: String,
    user: Option<String>,
    slots: Option<u32>,
    max_slots: Option<u32>,
    ranks: Vec<Ranks>,
    start: Vec<Text>,
}

#[derive(Serialize)]
struct Ranks {
    program: u32,
    first: u32,
    count: u32,
}

/// Describes programs, hosts, ranks, the tree of daemons, and how the daemons are started, as JSON.
pub(super) fn describe(
    plan: &Plan,
    location: &Location,
    environment: &Environment<'_>,
    hydrant: &OsStr,
) -> Result<String, RunError> {
    let programs = programs(plan);
    let (mapping, resource_manager, bootstrap, tree, hosts) = match location {
        Location::Local => {
            let mapping = process_mapping(&[(0, plan.size())])?;
            let host = local(&programs, &environment.hostname);
            (mapping, None, Bootstrap::Local.name(), None, vec![host])
        }
        Location::Nodes(deployment) => {
            let tree =
                deployment.job_map.tree(plan.radix(&deployment.bootstrap, deployment.job_map.nodes().len()));
            let tree = Tree { radix: tree.radix(), depth: tree.depth() };
            let manager = deployment.resource_manager.as_ref().map(|manager| manager.name());
            let hosts = hosts(plan, deployment, environment, hydrant);
            let mapping = deployment.job_map.process_mapping()?;
            (mapping, manager, deployment.bootstrap.name(), Some(tree), hosts)
        }
    };
    let (ranks, binding) = (plan.size(), plan.settings.bind.to_string());
    let document =
        PlanDocument { ranks, programs, binding, mapping, resource_manager, bootstrap, tree, hosts };
    Ok(json::document("plan", &document))
}

fn programs(plan: &Plan) -> Vec<Program> {
    let mut next = 0;
    let program = |program: &hydrant_run::plan::Program| {
        let first = next;
        next += program.ranks;
        let args = program.args.iter().map(|arg| arg.as_os_str().into()).collect();
        Program { command: program.command.as_os_str().into(), args, first, ranks: program.ranks }
    };
    plan.programs.iter().map(program).collect()
}

/// This machine, which starts no daemon.
fn local(programs: &[Program], name: &str) -> Host {
    let ranks = (0..).zip(programs).map(|(number, program)| Ranks {
        program: number,
        first: program.first,
        count: program.ranks,
    });
    let (slots, max_slots) = (None, None);
    Host {
        node: 0,
        name: name.to_owned(),
        user: None,
        slots,
        max_slots,
        ranks: ranks.collect(),
        start: Vec::new(),
    }
}

fn hosts(plan: &Plan, deployment: &Deployment, environment: &Environment<'_>, hydrant: &OsStr) -> Vec<Host> {
    let options = &plan.options.cluster;
    let daemon = [hydrant.to_owned(), super::DAEMON.into()];
    let (program, args) = (options.bootstrap_exec.as_deref(), &options.bootstrap_args);
    let bootstrap = &deployment.bootstrap;
    let all: Vec<_> = deployment.job_map.nodes().iter().map(|node| node.host.clone()).collect();
    let of_all = bootstrap.step_command(program, args, &all, &daemon);
    let describe = |(number, node): (u32, &Node)| {
        let of_one = || bootstrap.command(program, args, environment, &node.host, &daemon);
        let start = of_all.clone().unwrap_or_else(of_one);
        let ranks = node.rank_ranges.iter().map(|range| Ranks {
            program: range.program,
            first: range.first,
            count: range.count,
        });
        Host {
            node: number,
            name: node.host.name.clone(),
            user: node.host.user.clone(),
            slots: node.host.slots,
            max_slots: node.host.max_slots,
            ranks: ranks.collect(),
            start: start.iter().map(|word| word.as_os_str().into()).collect(),
        }
    };
    (1..).zip(deployment.job_map.nodes()).map(describe).collect()
}
