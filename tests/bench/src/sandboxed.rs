//! The core in the sandbox beside the core itself.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hydrant_core::Limits;
use hydrant_wasm::{Origin, Sandbox, Settings};

use crate::native::{Build, Plan, Shape};
use crate::pmi::Pmi;
use crate::table::{Row, Samples, Target};

/// Milliseconds that a start with cached code may take.
const START: f64 = 5.0;
/// KiB that the plugin's file may have.
const FILE: f64 = 500.0;
/// How much longer an exchange may take under a sandboxed server.
const EXCHANGE_TIMES: f64 = 1.05;

/// The rows of the sandbox for the exchange of a job; the others where there is none.
pub(crate) fn rows(plan: &Plan, shape: Shape) -> Vec<Row> {
    if shape.ranks > 0 {
        return [Pmi::V1, Pmi::V2].into_iter().flat_map(|pmi| exchange(plan, shape, pmi)).collect();
    }
    plan.noted(start(plan.runs)).unwrap_or_default()
}

fn plugin() -> Result<PathBuf> {
    std::env::var_os("HYDRANT_WASM")
        .map(PathBuf::from)
        .context("HYDRANT_WASM does not say where the plugin is")
}

/// From the plugin's file to a server that can be told of a job, and the length of the file.
fn start(runs: u32) -> Result<Vec<Row>> {
    let cache = std::env::temp_dir().join(format!("hydrant-bench-{}", std::process::id()));
    let (mut compiled, mut cached) = (Samples::default(), Samples::default());
    let time = |cache: Option<PathBuf>, expected| {
        let begin = Instant::now();
        let sandbox = Sandbox::load(&plugin()?, &Settings { cache, ..Settings::default() })?;
        sandbox.server(Limits::for_ranks(128), 1)?;
        ensure!(sandbox.origin() == expected, "the plugin's code came from elsewhere");
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let timed = time(Some(cache.clone()), Origin::Compiled).and_then(|first| {
        compiled.push(first);
        // Apart from each other: right after a compilation all caches of the processor are cold.
        for _ in 0..runs {
            cached.push(time(Some(cache.clone()), Origin::Cached)?);
        }
        for _ in 0..runs {
            compiled.push(time(None, Origin::Compiled)?);
        }
        Ok(())
    });
    // What cannot be removed from the temporary folder is removed with it.
    let _ = std::fs::remove_dir_all(&cache);
    timed?;
    let row = |what: &str, samples: &Samples, target| Row {
        what: format!("sandbox, start {what}"),
        n: 128,
        unit: "ms",
        hydrant: samples.median(),
        target,
        ..Row::default()
    };
    let file = Row {
        what: "sandbox, hydrant.wasm".to_owned(),
        n: 1,
        unit: "KiB",
        hydrant: Some(std::fs::metadata(plugin()?)?.len() as f64 / 1024.0),
        target: Some(Target::AtMost(FILE)),
        ..Row::default()
    };
    Ok(vec![row("compiled", &compiled, None), row("cached", &cached, Some(Target::AtMost(START))), file])
}

/// The exchange, and a get as its rank sees it: from the request over its socket to the reply.
fn exchange(plan: &Plan, shape: Shape, pmi: Pmi) -> [Row; 2] {
    let gets = f64::from(shape.ranks) * f64::from(shape.ranks);
    let [mut whole, mut get] = [(); 2].map(|()| (Samples::default(), Samples::default()));
    for _ in 0..plan.runs {
        for sandbox in [true, false] {
            let (whole, get) = if sandbox { (&mut whole.0, &mut get.0) } else { (&mut whole.1, &mut get.1) };
            let Some(mut command) = plan.hydrant(Build::New, shape).filter(|_| !whole.failed()) else {
                continue;
            };
            if sandbox {
                command.arg("--sandbox");
            }
            let moments = plan.noted(plan.job(command, pmi));
            whole.push_if(moments.map(|moments| moments.exchange() as f64 / 1e6));
            get.push_if(moments.map(|moments| moments.gets() as f64 / 1e3 / gets));
        }
    }
    let target = (shape.ranks == 128).then_some(Target::OfFloor(EXCHANGE_TIMES));
    let row = |what: &str, unit, (within, without): &(Samples, Samples), target| Row {
        what: format!("sandbox, PMI-{} {what}", pmi.name()),
        n: shape.ranks,
        unit,
        hydrant: within.median(),
        floor: without.median(),
        target,
        ..Row::default()
    };
    [row("exchange", "ms", &whole, target), row("get, round trip", "us", &get, None)]
}
