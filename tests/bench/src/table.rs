//! Medians, and the table that they end in.

use std::fmt;

use crate::machine::QUIET;

/// Ratio of two builds up to which the later one counts as equal.
const EQUAL: f64 = 1.03;

/// Probability of a finding for two builds whose ratio is [`EQUAL`].
const CHANCE: f64 = 0.01;

/// Times of one thing, of which the median counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    times: Vec<f64>,
    failed: bool,
}

impl Samples {
    pub(crate) fn push(&mut self, time: f64) {
        self.times.push(time);
    }

    /// Takes a time that may be missing: then there is no median, and whether to go on is to be asked of
    /// [`failed`](Samples::failed).
    pub(crate) fn push_if(&mut self, time: Option<f64>) {
        match time {
            Some(time) => self.push(time),
            None => self.failed = true,
        }
    }

    /// Whether a time is missing.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Whether these times exceed those of another build, measured in the same turns, by more than can be chance: by the sign
    /// test, for which seven turns are the fewest that suffice. False when a time is missing.
    pub(crate) fn exceed(&self, old: &Samples) -> bool {
        if self.failed || old.failed || self.times.len() != old.times.len() {
            return false;
        }
        let is_more = |(&new, &old): (&f64, &f64)| new > EQUAL * old;
        let more = self.times.iter().zip(&old.times).filter(|&pair| is_more(pair)).count();
        chance_of_heads(self.times.len(), more) < CHANCE
    }

    /// The middle one, or the mean of the middle two; `None` without samples or when one is missing.
    pub(crate) fn median(&self) -> Option<f64> {
        if self.failed {
            return None;
        }
        let mut sorted = self.times.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
    }
}

/// The probability that so many or more of `coins` show heads.
fn chance_of_heads(coins: usize, heads: usize) -> f64 {
    let mut ways = 1.0;
    let mut tails = 0.0;
    // Ways to show `at` tails, of which there are as many as of `coins - at` heads.
    for at in 0..=coins - heads {
        tails += ways;
        ways *= (coins - at) as f64 / (at + 1) as f64;
    }
    tails / 2_f64.powi(coins as i32)
}

/// What hydrant's figure is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// At most so many times the floor.
    OfFloor(f64),
    /// At most so many times the other process manager.
    OfPeer(f64),
    /// At most so much, in the row's unit.
    AtMost(f64),
}

/// A line of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// Of how many: processes, or keys stored.
    pub(crate) n: u32,
    /// The unit of the figures.
    pub(crate) unit: &'static str,
    pub(crate) hydrant: Option<f64>,
    /// Another build of hydrant.
    pub(crate) old: Option<f64>,
    /// Whether hydrant's figures exceed those of the other build, see [`Samples::exceed`].
    pub(crate) exceeds_old: bool,
    /// The other process manager: hydra, or prterun in rows of PMIx.
    pub(crate) peer: Option<f64>,
    pub(crate) floor: Option<f64>,
    pub(crate) target: Option<Target>,
    /// Processors that other work took meanwhile, on average; `None` where it was not looked at.
    pub(crate) others: Option<f64>,
}

impl Row {
    /// Whether other work took so much of the machine that the figures say little.
    pub(crate) fn disturbed(&self) -> bool {
        self.others.is_some_and(|others| others > QUIET)
    }

    /// Whether this build is slower than the other one, by figures of a quiet machine.
    pub(crate) fn regressed(&self) -> bool {
        self.exceeds_old && !self.disturbed()
    }

    /// Whether the target is met; `None` without a target or a figure.
    fn met(&self) -> Option<bool> {
        let hydrant = self.hydrant?;
        Some(match self.target? {
            Target::OfFloor(most) => hydrant <= most * self.floor?,
            Target::OfPeer(most) => hydrant <= most * self.peer?,
            Target::AtMost(most) => hydrant <= most,
        })
    }

    fn cells(&self) -> [String; HEAD.len()] {
        let figure =
            |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.*}", if x < 10.0 { 2 } else { 1 }));
        let ratio = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => format!("{:.*}", if a / b < 0.1 { 4 } else { 2 }, a / b),
            _ => "-".into(),
        };
        let target = self.target.map_or(String::new(), |target| {
            let verdict = match self.met() {
                Some(_) if self.disturbed() => "machine busy",
                Some(true) => "ok",
                Some(false) => "MISS",
                None => "not measured",
            };
            match target {
                Target::OfFloor(most) => format!("<= {most:.2} floor: {verdict}"),
                Target::OfPeer(most) => format!("<= {most:.2} peer: {verdict}"),
                Target::AtMost(most) => format!("<= {most} {}: {verdict}", self.unit),
            }
        });
        let mut of_old = ratio(self.hydrant, self.old);
        if self.regressed() {
            of_old.insert_str(0, "SLOWER ");
        }
        [
            self.what.clone(),
            self.n.to_string(),
            self.unit.into(),
            figure(self.hydrant),
            figure(self.old),
            figure(self.peer),
            figure(self.floor),
            of_old,
            ratio(self.hydrant, self.peer),
            ratio(self.hydrant, self.floor),
            target,
        ]
    }
}

const HEAD: [&str; 11] =
    ["measured", "n", "unit", "hydrant", "old", "peer", "floor", "of old", "of peer", "of floor", "target"];

/// Columns that are left out where no other build is measured.
const OLD: [usize; 2] = [4, 7];

/// The rows in aligned columns.
pub(crate) struct Table<'a>(pub(crate) &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![HEAD.map(String::from)];
        lines.extend(self.0.iter().map(Row::cells));
        let compared = self.0.iter().any(|row| row.old.is_some());
        let widths: [usize; HEAD.len()] =
            std::array::from_fn(|i| lines.iter().map(|line| line[i].len()).max().unwrap_or(0));
        for line in &lines {
            let mut text = String::new();
            for (i, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                if !compared && OLD.contains(&i) {
                    continue;
                }
                let left = matches!(i, 0 | 2) || i == HEAD.len() - 1;
                let cell = if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                text.push_str(&cell);
                text.push_str("  ");
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        let of = |times: &[f64]| Samples { times: times.to_vec(), failed: false }.median();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 30.0]), Some(3.0));

        let mut samples = Samples::default();
        samples.push_if(Some(1.0));
        assert_eq!(samples.median(), Some(1.0));
        samples.push_if(None);
        assert!(samples.failed());
        assert_eq!(samples.median(), None);
    }

    #[test]
    fn a_build_is_slower_when_chance_does_not_explain_the_difference() {
        let of = |times: &[f64]| Samples { times: times.to_vec(), failed: false };
        let exceeds = |new: f64, turns: usize| of(&vec![new; turns]).exceed(&of(&vec![1.0; turns]));
        assert!(exceeds(1.04, 7));
        assert!(!exceeds(1.02, 7) && !exceeds(1.04, 6) && !exceeds(0.5, 7));
        // 10 of 11 turns are 12 of 2,048 ways, 9 of 11 are 67.
        let turns = |more: usize| [vec![1.1; more], vec![0.9; 11 - more]].concat();
        assert!(of(&turns(10)).exceed(&of(&[1.0; 11])));
        assert!(!of(&turns(9)).exceed(&of(&[1.0; 11])));
        let row = Row { exceeds_old: true, ..Row::default() };
        assert!(row.regressed() && !Row { others: Some(0.5), ..row }.regressed());
    }

    #[test]
    fn targets_compare_with_what_they_name() {
        let row = Row { hydrant: Some(11.0), peer: Some(20.0), floor: Some(10.0), ..Row::default() };
        let met = |target| Row { target: Some(target), ..row.clone() }.met();
        assert_eq!(met(Target::OfFloor(1.1)), Some(true));
        assert_eq!(met(Target::OfFloor(1.0)), Some(false));
        assert_eq!(met(Target::OfPeer(0.5)), Some(false));
        assert_eq!(met(Target::AtMost(11.0)), Some(true));
        assert_eq!(Row { floor: None, target: Some(Target::OfFloor(1.0)), ..row }.met(), None);
    }

    #[test]
    fn figures_of_a_busy_machine_are_not_judged() {
        let row = Row { hydrant: Some(2.0), target: Some(Target::AtMost(1.0)), ..Row::default() };
        let shown = |others| Table(&[Row { others, ..row.clone() }]).to_string();
        assert!(shown(Some(0.01)).contains("MISS"));
        assert!(shown(Some(0.5)).contains("machine busy"));
        assert!(!shown(None).contains("of old"));
        assert!(Table(&[Row { old: Some(4.0), ..row }]).to_string().contains("of old"));
    }
}
