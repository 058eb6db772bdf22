//! Curves as SVG.

/// A curve: its points, which colour it has, and its name. A curve without a name is drawn thin, and is not in the key.
pub(crate) struct Curve {
    pub(crate) name: Option<String>,
    pub(crate) colour: usize,
    pub(crate) points: Vec<[f64; 2]>,
}

/// Curves of one picture, with its title and the name of its horizontal axis. Both axes begin at 0.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) across: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const COLOURS: [&str; 4] = ["steelblue", "darkorange", "seagreen", "purple"];

/// Height of one plot, and the frame inside it: left, right, top and bottom.
const HEIGHT: f64 = 240.0;
const FRAME: [f64; 4] = [50.0, 590.0, 30.0, 205.0];

/// Plots, below each other.
pub(crate) fn plot(plots: &[Plot]) -> String {
    let body: String = plots.iter().enumerate().map(|(i, plot)| one(plot, HEIGHT * i as f64)).collect();
    let height = HEIGHT * plots.len() as f64;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="600" height="{height}" font-family="sans-serif" font-size="12">
<rect width="600" height="{height}" fill="white"/>
{body}</svg>
"#
    )
}

fn one(plot: &Plot, above: f64) -> String {
    let Plot { title, across, curves } = plot;
    let [left, right, top, bottom] = [FRAME[0], FRAME[1], FRAME[2] + above, FRAME[3] + above];
    let most = |axis: usize| curves.iter().flat_map(|c| &c.points).map(|p| p[axis]).fold(f64::MIN_POSITIVE, f64::max);
    let [far, high] = [most(0), most(1)];
    let mut text = format!("<text x=\"{left}\" y=\"{:.0}\">{title}</text>\n", top - 12.0);
    let axes = format!("M{left} {top}V{bottom}H{right}");
    text += &format!("<path d=\"{axes}\" fill=\"none\" stroke=\"black\"/>\n");
    for quarter in 0..=4 {
        let part = f64::from(quarter) / 4.0;
        let (x, y) = (left + part * (right - left), bottom - part * (bottom - top));
        let label = |value: f64| match value {
            0.0 | 10.0.. => format!("{value:.0}"),
            1.0.. => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        };
        let (under, beside) = (label(part * far), label(part * high));
        text += &format!("<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{beside}</text>\n", left - 6.0, y + 4.0);
        text += &format!("<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{under}</text>\n", bottom + 16.0);
    }
    let middle = f64::midpoint(left, right);
    text += &format!("<text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{across}</text>\n", bottom + 30.0);
    // The key is in the upper corner where no curve goes.
    let rises = |c: &Curve| c.points[c.points.len() - 1][1] > c.points[0][1] + 0.2 * high;
    let (corner, anchor) = if curves.iter().any(rises) { (left + 12.0, "start") } else { (right, "end") };
    let mut line = 0.0;
    for Curve { name, colour, points } in curves {
        let colour = COLOURS[colour % COLOURS.len()];
        let at = |p: &[f64; 2]| {
            format!("{:.0},{:.0}", left + (right - left) * p[0] / far, bottom - (bottom - top) * p[1] / high)
        };
        let points: Vec<String> = points.iter().map(at).collect();
        let [wide, opacity] = if name.is_some() { [2.0, 1.0] } else { [0.7, 0.5] };
        text += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{wide}\" opacity=\"{opacity}\"/>\n",
            points.join(" ")
        );
        if let Some(name) = name {
            let y = top + 14.0 + 15.0 * line;
            let place = format!("x=\"{corner}\" y=\"{y:.0}\" text-anchor=\"{anchor}\"");
            text += &format!("<text {place} fill=\"{colour}\">{name}</text>\n");
            line += 1.0;
        }
    }
    text
}
