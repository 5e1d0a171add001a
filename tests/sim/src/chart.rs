//! The costs as a picture.

use std::error::Error;
use std::path::Path;

use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;

use crate::measure::Cost;

/// Colors that are distinguishable with color blindness.
const COLORS: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// Draws the time of fences over the number of nodes, with a line for each number of ranks.
///
/// # Errors
/// The file cannot be written.
pub fn draw(costs: &[Cost], path: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (720, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = costs.iter().map(|cost| cost.daemons).max().unwrap_or(2);
    let (low, high) =
        costs.iter().fold((u64::MAX, 0), |(low, high), cost| (low.min(cost.empty), high.max(cost.time)));
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let mut chart = ChartBuilder::on(&root)
        .caption("From the last arrival in a fence to the last release", ("sans-serif", 18))
        .margin(12)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (2.0..f64::from(most)).log_scale(),
            (micros(low) / 2.0..micros(high) * 2.0).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("nodes")
        .y_desc("microseconds")
        .x_labels(10)
        .label_style(("sans-serif", 13))
        .draw()?;
    let mut ranks: Vec<u32> = costs.iter().map(|cost| cost.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for (at, ranks) in ranks.iter().enumerate() {
        let points = costs.iter().filter(|cost| cost.ranks == *ranks);
        let points: Vec<(f64, f64)> =
            points.map(|cost| (f64::from(cost.daemons), micros(cost.time))).collect();
        line(
            &mut chart,
            &points,
            COLORS[at % COLORS.len()].to_rgba(),
            &format!("{ranks} ranks, a value each"),
        )?;
    }
    let mut empty: Vec<(f64, f64)> = Vec::new();
    for cost in costs {
        // The value hardly depends on the ranks. The largest number of ranks represents all.
        empty.retain(|&(daemons, _)| daemons != f64::from(cost.daemons));
        empty.push((f64::from(cost.daemons), micros(cost.empty)));
    }
    line(&mut chart, &empty, BLACK.to_rgba(), "nothing put")?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()?;
    root.present()?;
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

fn line(
    chart: &mut Chart<'_, '_>,
    points: &[(f64, f64)],
    color: RGBAColor,
    label: &str,
) -> Result<(), Box<dyn Error>> {
    let style = color.stroke_width(2);
    chart
        .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
        .label(label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    Ok(())
}
