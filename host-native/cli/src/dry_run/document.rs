//! JSON of `--dry-run`.

use std::ffi::{OsStr, OsString};

use hydrant_placement::{Bootstrap, Deployment, Environment, Location, RankRange, process_mapping};
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
    is_late: bool,
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
            let tree = deployment.job_map.tree(plan.radix(deployment));
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
        is_late: false,
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
    let of_one = |host| bootstrap.command(program, args, environment, host, &daemon);
    let describe =
        |node: u32, host: &hydrant_placement::Host, ranges: &[RankRange], start: &[OsString]| Host {
            node,
            name: host.name.clone(),
            user: host.user.clone(),
            slots: host.slots,
            max_slots: host.max_slots,
            ranks: ranges
                .iter()
                .map(|&RankRange { program, first, count }| Ranks { program, first, count })
                .collect(),
            is_late: node as usize > all.len(),
            start: start.iter().map(|word| word.as_os_str().into()).collect(),
        };
    let from_start = (1..).zip(deployment.job_map.nodes()).map(|(number, node)| {
        let start = of_all.clone().unwrap_or_else(|| of_one(&node.host));
        describe(number, &node.host, &node.rank_ranges, &start)
    });
    let late = (all.len() as u32 + 1..).zip(&deployment.unused);
    let late = late.map(|(number, host)| describe(number, host, &[], &of_one(host)));
    from_start.chain(late).collect()
}
