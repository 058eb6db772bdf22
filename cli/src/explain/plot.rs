//! `atlas explain --sweep N=1..65536 --plot FILE`: plots time against size as SVG.

use super::time::Time;
use anyhow::{Context, Result, anyhow};
use atlas_runtime::files;
use plotters::prelude::*;
use std::path::Path;

/// Draws the chosen config's predicted time, the recorded times if there are any, and the bound, on logarithmic axes.
/// Without records of the kernel it draws only the model's cycles, which are not times.
pub(super) fn draw(file: &Path, title: &str, dim: &str, times: &[(u64, Time)]) -> Result<()> {
    let in_us = times.iter().all(|(_, t)| t.predicted_us().is_some());
    let predicted = |t: &Time| t.predicted_us().filter(|_| in_us).unwrap_or(t.cycles());
    let bound = |(n, t): &(u64, Time)| Some((*n as f64, t.bound_us().filter(|us| in_us && *us > 0.0)?));
    let lines: [Line<'_>; 3] = [
        ("chosen, by the model", BLUE, times.iter().map(|(n, t)| (*n as f64, predicted(t))).collect()),
        ("bound", BLACK, times.iter().filter_map(bound).collect()),
        (
            "recorded",
            RED,
            times.iter().filter(|_| in_us).filter_map(|(n, t)| Some((*n as f64, t.recorded_us()?))).collect(),
        ),
    ];
    let mut svg = String::new();
    chart(&mut svg, title, dim, if in_us { "microseconds" } else { "cycles of the model" }, &lines)
        .map_err(|e| anyhow!("--plot: {e}"))?;
    files::write(file, svg.as_bytes()).with_context(|| format!("--plot: cannot write {}", file.display()))
}

type Line<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

fn chart(
    svg: &mut String,
    title: &str,
    x: &str,
    y: &str,
    lines: &[Line<'_>],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|l| &l.2);
    let span = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) = all().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        low * 0.8..high * 1.25
    };
    if all().next().is_none() {
        return Err("no config is legal at any of the sizes".into());
    }
    let root = SVGBackend::with_string(svg, (900, 540)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(span(|p| p.0).log_scale(), span(|p| p.1).log_scale())?;
    chart.configure_mesh().x_desc(x).y_desc(y).draw()?;
    for (name, colour, points) in lines.iter().filter(|l| !l.2.is_empty()) {
        let (name, colour) = (*name, *colour);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
