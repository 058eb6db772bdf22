//! Curves as SVG.

/// A curve: its name and its points.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<[f64; 2]>,
}

/// Curves of one picture, with its title and the name of its horizontal axis.
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const COLOURS: [&str; 4] = ["steelblue", "darkorange", "seagreen", "purple"];

/// Plots, below each other.
pub(crate) fn plot(plots: &[Plot]) -> String {
    let mut body = String::new();
    for (i, Plot { title, across, curves }) in plots.iter().enumerate() {
        let top = 400.0 * i as f64;
        let most =
            |axis: usize| curves.iter().flat_map(|c| &c.points).map(|p| p[axis]).fold(f64::MIN_POSITIVE, f64::max);
        let (right, high) = (most(0), most(1));
        body += &format!(
            r#"<path d="M60 {}V{}H760" fill="none" stroke="black"/>
<text x="60" y="{}">{title}</text>
<text x="52" y="{}" text-anchor="end">{high:.2}</text><text x="52" y="{}" text-anchor="end">0</text>
<text x="760" y="{}" text-anchor="end">{right:.0} {across}</text>
"#,
            top + 40.0,
            top + 340.0,
            top + 28.0,
            top + 46.0,
            top + 345.0,
            top + 362.0
        );
        for (j, curve) in curves.iter().enumerate() {
            let colour = COLOURS[j % COLOURS.len()];
            let at =
                |p: &[f64; 2]| format!("{:.1},{:.1}", 60.0 + 700.0 * p[0] / right, top + 340.0 - 300.0 * p[1] / high);
            let points: Vec<String> = curve.points.iter().map(at).collect();
            body += &format!(
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.5"/>
<text x="750" y="{}" text-anchor="end" fill="{colour}">{}</text>
"#,
                points.join(" "),
                top + 60.0 + 18.0 * j as f64,
                curve.name
            );
        }
    }
    let height = 400 * plots.len();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="800" height="{height}" font-family="sans-serif" font-size="14">
<rect width="800" height="{height}" fill="white"/>
{body}</svg>
"#
    )
}
