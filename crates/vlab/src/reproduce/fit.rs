// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--fit`: values of the open parameters that bring the simulated figures nearest to the
//! published ones, by coordinate search.
//!
//! Each parameter in turn is moved up and down by a factor, within the range that
//! parameters.toml gives it, or to its other values; what brings the rows nearer is kept.
//! Then those that trade with another (how long a program computes, and how long it waits)
//! are moved together with it: where rows ask for a ratio of the two, neither alone gets
//! anywhere.
//! There is one value for all configurations, as everywhere. What a row loses is the
//! logarithm of `1 + error / 10 %`: a row that cannot be met, because what was published
//! contradicts itself or a mechanism is missing, pulls less the further it is away, as in
//! the median that is reported. (`error / (error + 10 %)`, which ends at 1, gave such rows
//! up: RocksDB was ready for 3 % of the time instead of 21 so that others came out.) Shape
//! checks (13.6) and rows that are inputs do not take part.
//!
//! Every fourth row does not either (`outcome::published`): how far those are off
//! afterwards is what the fit is worth for figures that it has not seen.

use std::fmt::Write;
use std::time::Instant;

use experiment::reproduction;
use experiment::reproduction::Errors;
use experiment::reproduction::Row;
use experiment::reproduction::Tally;
use rayon::prelude::*;

use super::Experiment;
use super::effort_of;
use super::mix::Effort;
use super::mix::Memo;
use super::outcome::Published;
use super::outcome::judged;
use super::parameters::Parameter;
use super::parameters::Parameters;
use super::simulate;

/// A row that is so far off has lost 1.
const ONE: f64 = 0.1;

/// Further off than that, and one that is no number, is all the same.
const MOST: f64 = 10.0;

/// Systems that do not come in the published order have lost so much.
const ORDER: f64 = 0.5;

/// Parameters are moved by these factors, one after the other.
const FACTORS: [f64; 3] = [1.5, 1.2, 1.1];

/// A step has to be worth so much of a row: less is chance.
const WORTH: f64 = 0.06;

/// How often the same way is gone on with.
const STRIDES: usize = 4;

/// What is to be fitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) chosen: &'a [&'static Experiment],
    pub(super) quick: bool,
    /// How often all parameters are gone through with each factor at most.
    pub(super) sweeps: u32,
}

/// An experiment as it comes out, and what it has asked for.
#[derive(Clone, Debug)]
struct Known {
    judged: reproduction::Experiment,
    read: Vec<String>,
}

struct Fit<'a> {
    wanted: &'a Wanted<'a>,
    published: &'a Published,
    memo: &'a Memo,
}

/// What each value is judged by. Quick: two rounds of whole length instead of three. One
/// short one, as `--quick` has elsewhere, is fitted to its own chance: vSMT-IO's values had
/// 41 % of their rows within 10 % in that and 31 in whole rounds.
fn effort_for(experiment: &Experiment, quick: bool) -> Effort<'static> {
    let whole = effort_of(experiment, false);
    Effort {
        seeds: if quick { 2 } else { whole.seeds },
        ..whole
    }
}

/// Fits, telling each step on stderr, and returns what was found as text.
///
/// # Errors
/// A simulation cannot be built.
pub(super) fn fit(
    wanted: &Wanted<'_>,
    start: &Parameters,
    published: &Published,
    memo: &Memo,
) -> anyhow::Result<String> {
    let fit = Fit {
        wanted,
        published,
        memo,
    };
    let mut own = start.clone();
    let mut known = fit.all(&own)?;
    let before = known.clone();
    let began = Instant::now();
    eprintln!("{}", told(&known));
    for factor in FACTORS {
        for sweep in 0..wanted.sweeps {
            let mut better = false;
            for names in moved(start) {
                let steps = fit.improve(&names, factor, &mut own, &mut known)?;
                better |= steps > 0;
                if steps > 0 {
                    let values = names.iter().map(|name| own.get(name));
                    let values: Vec<f64> = values.collect::<anyhow::Result<_>>()?;
                    eprintln!(
                        "{:5.0} s, by {factor}, {}: {} = {values:?}; {}",
                        began.elapsed().as_secs_f64(),
                        sweep + 1,
                        names.join(", "),
                        told(&known)
                    );
                }
            }
            if !better {
                break;
            }
        }
    }
    let mut text = format!("before: {}\n after: {}\n\n", told(&before), told(&known));
    for (from, to) in start.iter().zip(own.iter()) {
        if differ(from.value, to.value) {
            let _ = writeln!(text, "{} = {}  (was {})", to.name, to.value, from.value);
        }
    }
    Ok(text)
}

/// What is moved at once, in this order: each parameter, then each with what it trades with.
fn moved(start: &Parameters) -> Vec<Vec<&str>> {
    let single = start.iter().map(|p| vec![p.name.as_str()]);
    let pairs = start
        .iter()
        .filter_map(|p| Some(vec![p.name.as_str(), p.trades_with.as_deref()?]));
    single.chain(pairs).collect()
}

fn differ(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_ne()
}

/// What a row has lost: nothing if it is met, 1 at [`ONE`], 2 at three times that.
pub(super) fn loss(row: &Row) -> f64 {
    let far = (1.0 + MOST / ONE).log2();
    match row.error.map(f64::abs) {
        Some(error) if error.is_finite() => (1.0 + error / ONE).log2().min(far),
        _ => far,
    }
}

/// Two significant digits: more would be no knowledge.
fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

impl Parameter {
    /// Other values, one step away.
    fn steps(&self, factor: f64) -> Vec<f64> {
        let mut steps = match self.range {
            Some([least, most]) => [self.value * factor, self.value / factor]
                .map(|value| rounded(value.clamp(least, most)))
                .to_vec(),
            None if self.is_fitted() => self.others.clone(),
            None => Vec::new(),
        };
        steps.retain(|value| differ(*value, self.value));
        steps
    }
}

impl Fit<'_> {
    /// What the rows of an experiment have lost, and the orders of their systems.
    fn lost(of: &reproduction::Experiment) -> f64 {
        let rows: Vec<Row> = of.rows.iter().filter(|row| fitted(row)).cloned().collect();
        let wrong = reproduction::orders(&rows);
        let wrong = wrong.iter().filter(|order| !order.holds()).count();
        rows.iter().map(loss).sum::<f64>() + ORDER * wrong as f64
    }

    fn one(&self, experiment: &'static Experiment, own: &Parameters) -> anyhow::Result<Known> {
        let effort = Effort {
            memo: Some(self.memo),
            ..effort_for(experiment, self.wanted.quick)
        };
        let own = own.watched();
        let outcome = simulate(experiment, &own, effort)?;
        Ok(Known {
            judged: judged(experiment, effort, &outcome, &[], self.published, &own),
            read: own.read(),
        })
    }

    fn all(&self, own: &Parameters) -> anyhow::Result<Vec<Known>> {
        let chosen = self.wanted.chosen.par_iter();
        chosen.map(|e| self.one(e, own)).collect()
    }

    /// Moves these parameters together as long as that helps, and says how often it did.
    fn improve(
        &self,
        names: &[&str],
        factor: f64,
        own: &mut Parameters,
        known: &mut [Known],
    ) -> anyhow::Result<usize> {
        let concerned = |known: &[Known]| -> Vec<usize> {
            let reads = |n: &usize| known[*n].read.iter().any(|read| names.contains(&&**read));
            let rows = |n: &usize| known[*n].judged.rows.iter().any(fitted);
            (0..known.len()).filter(reads).filter(rows).collect()
        };
        let mut made = 0;
        let mut way: Option<Vec<bool>> = None;
        while made < STRIDES {
            let here = concerned(known);
            let parameters = names
                .iter()
                .map(|name| own.iter().find(|p| p.name == *name));
            let parameters: Option<Vec<&Parameter>> = parameters.collect();
            let Some(parameters) = parameters.filter(|_| !here.is_empty()) else {
                break;
            };
            let from: Vec<f64> = parameters.iter().map(|p| p.value).collect();
            let ups = |step: &[f64]| -> Vec<bool> {
                step.iter().zip(&from).map(|(to, from)| to > from).collect()
            };
            let mut steps = together(&parameters, factor);
            if let Some(way) = &way {
                steps.retain(|step| ups(step) == *way);
            }
            let jobs: Vec<(usize, usize)> = (0..steps.len())
                .flat_map(|step| here.iter().map(move |n| (step, *n)))
                .collect();
            let with = |step: &[f64]| {
                let changes = names.iter().zip(step);
                changes.fold(own.clone(), |own, (name, value)| own.with(name, *value))
            };
            let tried: Vec<(usize, usize, Known)> = jobs
                .into_par_iter()
                .map(|(step, n)| {
                    let own = with(&steps[step]);
                    Ok((step, n, self.one(self.wanted.chosen[n], &own)?))
                })
                .collect::<anyhow::Result<_>>()?;
            let lost: f64 = here.iter().map(|n| Self::lost(&known[*n].judged)).sum();
            let gain = |step: usize| {
                let of = tried.iter().filter(|(s, ..)| *s == step);
                lost - of.map(|(_, _, k)| Self::lost(&k.judged)).sum::<f64>()
            };
            let best = (0..steps.len()).max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
            let Some(best) = best.filter(|best| gain(*best) > WORTH) else {
                break;
            };
            way = Some(ups(&steps[best]));
            *own = with(&steps[best]);
            for (_, n, k) in tried.into_iter().filter(|(step, ..)| *step == best) {
                known[n] = k;
            }
            made += 1;
        }
        Ok(made)
    }
}

/// Other values of all of these, each one step away.
fn together(parameters: &[&Parameter], factor: f64) -> Vec<Vec<f64>> {
    parameters.iter().fold(vec![Vec::new()], |all, p| {
        let steps = p.steps(factor);
        let longer = |before: Vec<f64>| {
            let steps = steps.clone().into_iter();
            steps.map(move |step| [&before[..], &[step]].concat())
        };
        all.into_iter().flat_map(longer).collect()
    })
}

/// Is it a row that takes part?
pub(super) const fn fitted(row: &Row) -> bool {
    row.counts() && row.fixed
}

/// How far off all rows are.
fn told(known: &[Known]) -> String {
    let mut tally = Tally::default();
    for one in known {
        tally.count(&one.judged);
    }
    let errors = |errors: Option<Errors>| errors.map_or("none".to_owned(), |e| e.text());
    let lost: f64 = known.iter().map(|k| Fit::lost(&k.judged)).sum();
    format!(
        "lost {lost:.2}; fitted to: {}; kept out: {}; {} checks, {} orders",
        errors(tally.calibrated()),
        errors(tally.predicted()),
        tally.shapes(),
        tally.orderings()
    )
}

#[cfg(test)]
mod tests {
    use super::super::experiments::EXPERIMENTS;
    use super::super::outcome::published;
    use super::*;

    fn parameter(value: f64, range: Option<[f64; 2]>, others: &[f64]) -> Parameter {
        let all = Parameters::load(&[]).unwrap();
        Parameter {
            value,
            range,
            others: others.to_vec(),
            kept_as_it_is: false,
            ..all.iter().next().unwrap().clone()
        }
    }

    #[test]
    fn what_trades_is_moved_together_in_all_directions() {
        let (run, wait) = (
            parameter(100.0, Some([10.0, 1000.0]), &[]),
            parameter(30.0, Some([30.0, 99.0]), &[]),
        );
        assert_eq!(
            together(&[&run, &wait], 2.0),
            [[200.0, 60.0], [50.0, 60.0]],
            "the second cannot be less"
        );
        let kept = parameter(1.0, None, &[]);
        assert!(together(&[&run, &kept], 2.0).is_empty());
    }

    /// Who trades does so with a parameter that there is, and each pair is named once.
    #[test]
    fn pairs_are_of_parameters_that_may_be_fitted() {
        let all = Parameters::load(&[]).unwrap();
        let pairs: Vec<Vec<&str>> = moved(&all).into_iter().filter(|m| m.len() == 2).collect();
        assert!(!pairs.is_empty());
        for pair in &pairs {
            for name in pair {
                let found = all.iter().find(|p| p.name == *name);
                assert!(found.is_some_and(Parameter::is_fitted), "{name}");
            }
            let again = vec![pair[1], pair[0]];
            assert!(!pairs.contains(&again), "{pair:?} is named twice");
        }
    }

    #[test]
    fn a_row_loses_by_the_logarithm_of_its_error() {
        let loss = |simulated| loss(&Row::new("a", simulated, Some(10.0), true));
        assert!(loss(10.0) < 1e-9);
        assert!((loss(11.0) - 1.0).abs() < 1e-9);
        assert!((loss(7.0) - 2.0).abs() < 1e-9);
        assert!((loss(1e9) - loss(f64::NAN)).abs() < 1e-9, "both are lost");
    }

    #[test]
    fn a_step_stays_in_the_range_and_has_two_digits() {
        let steps = |p: &Parameter| p.steps(1.5);
        assert_eq!(
            steps(&parameter(33.0, Some([30.0, 99.0]), &[])),
            [50.0, 30.0]
        );
        assert_eq!(steps(&parameter(30.0, Some([30.0, 31.0]), &[])), [31.0]);
        assert_eq!(steps(&parameter(1.0, None, &[0.0, 2.0])), [0.0, 2.0]);
        let kept = Parameter {
            kept_as_it_is: true,
            ..parameter(1.0, None, &[0.0])
        };
        assert!(steps(&kept).is_empty());
    }

    /// What `--fit` may choose is plausible, also as it is.
    #[test]
    fn parameters_are_in_their_ranges() {
        for p in Parameters::load(&[]).unwrap().iter() {
            if let Some([least, most]) = p.range {
                assert!(least > 0.0 && least < most, "{}", p.name);
                assert!((least..=most).contains(&p.value), "{}", p.name);
                assert!(!p.kept_as_it_is, "{}", p.name);
            }
        }
    }

    /// iSche's disk decides how fast its dd is: begun at 70 MB/s it is brought near the
    /// 99 that were published, and the parameters of others stay.
    #[test]
    fn what_is_off_is_brought_back() {
        let chosen: Vec<&Experiment> = EXPERIMENTS.iter().filter(|e| e.name == "ische").collect();
        let wanted = Wanted {
            chosen: &chosen,
            quick: true,
            sweeps: 1,
        };
        let start = Parameters::load(&["ische.disk_mb_per_s=70".to_owned()]).unwrap();
        let text = fit(&wanted, &start, &published().unwrap(), &Memo::default()).unwrap();
        let line = text
            .lines()
            .find(|l| l.starts_with("ische.disk_mb_per_s = "));
        let value = line.unwrap().split(' ').nth(2).unwrap();
        let value: f64 = value.parse().unwrap();
        assert!((90.0..=110.0).contains(&value), "{text}");
        assert!(!text.contains("jupiter."), "{text}");
    }
}
