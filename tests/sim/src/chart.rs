//! The costs as a picture.

use std::error::Error;
use std::path::Path;

use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;

use crate::compare::{Point, RANKS, Row};
use crate::fabric::Charge;
use crate::models::{Model, VALUES};

/// Colors that are distinguishable with color blindness.
const COLORS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 120, 120),
];

/// Nodes and microseconds.
type Points = Vec<(f64, f64)>;

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Draws the time of fences of [`RANKS`] ranks a node over the number of nodes, with a line for each value.
///
/// # Errors
/// The file cannot be written.
pub fn draw(points: &[Point], path: &Path) -> Result<(), Box<dyn Error>> {
    let of =
        |value| points.iter().filter(move |point| (point.load.ranks, point.load.value) == (RANKS, value));
    let at = |point: &Point, nanos| (f64::from(point.load.daemons), micros(nanos));
    let mut lines: Vec<(String, Points)> = Vec::new();
    for value in VALUES {
        let times = of(value).filter_map(|point| Some(at(point, point.own.time()?)));
        lines.push((format!("{value} bytes a rank"), times.collect()));
    }
    let bound = of(VALUES[1]).map(|point| at(point, point.bound)).collect();
    lines.push((format!("bound of {} bytes", VALUES[1]), bound));
    picture(&lines, &format!("A fence of hydrant, {RANKS} ranks a node"), path)
}

/// Draws the time of fences of hydrant and of the models, with 128 bytes a rank.
///
/// # Errors
/// The file cannot be written.
pub fn draw_compared(rows: &[Row], path: &Path) -> Result<(), Box<dyn Error>> {
    let chosen = || rows.iter().filter(|row| row.charge == Charge::Both && row.load.value == VALUES[1]);
    let point = |row: &Row, nanos| (f64::from(row.load.daemons), micros(nanos));
    let hydrant = chosen().filter_map(|row| row.hydrant.time().map(|time| point(row, time)));
    let mut lines = vec![("hydrant".to_owned(), hydrant.collect::<Points>())];
    for (at, model) in Model::ALL.iter().enumerate() {
        let times = chosen().map(|row| point(row, row.models[at].time));
        lines.push((model.name().to_owned(), times.collect()));
    }
    let title = format!("Fences with {} bytes a rank, {RANKS} ranks a node, sending charged too", VALUES[1]);
    picture(&lines, &title, path)
}

/// Draws lines over the number of nodes, both axes logarithmic.
fn picture(lines: &[(String, Points)], title: &str, path: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (720, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|point| point.0).fold(2.0, f64::max);
    let least = points().map(|point| point.0).fold(most, f64::min);
    let high = points().map(|point| point.1).fold(1.0, f64::max);
    let low = points().map(|point| point.1).fold(high, f64::min);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((least..most).log_scale(), (low / 2.0..high * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("nodes")
        .y_desc("microseconds")
        .x_labels(10)
        .label_style(("sans-serif", 13))
        .draw()?;
    for ((name, points), color) in lines.iter().zip([BLACK].iter().chain(&COLORS)) {
        line(&mut chart, points, color.to_rgba(), name)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
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
