//! Colours and the style sheet.

use std::fmt::Write as _;

/// The colours of a page.
pub(super) struct Scheme {
    /// Behind everything.
    pub(super) ground: &'static str,
    /// Behind tables and remarks.
    raised: &'static str,
    /// Text.
    ink: &'static str,
    /// Text of less weight.
    muted: &'static str,
    /// Grids and borders.
    line: &'static str,
    /// Links, and what wants attention.
    accent: &'static str,
    /// One for each series, then from the beginning again.
    pub(super) series: [&'static str; COLOURS],
}

/// Colours of series.
pub(super) const COLOURS: usize = 8;

/// The series' colours are the hues of Okabe and Ito (2008), which people tell apart without red, green or blue cones. They are darker
/// on white and paler on black than theirs, so that each has a contrast of 3 to its ground (WCAG 2.2, 1.4.11), and differ in lightness
/// from each other.
pub(super) const LIGHT: Scheme = Scheme {
    ground: "#ffffff",
    raised: "#f6f7f8",
    ink: "#1b1f24",
    muted: "#59626d",
    line: "#dfe3e7",
    accent: "#005a8e",
    series: ["#1a74ad", "#d06a48", "#0f5f40", "#ae2583", "#9c8a10", "#2c3039", "#2a8af5", "#6c1d05"],
};

/// On black.
pub(super) const DARK: Scheme = Scheme {
    ground: "#14171b",
    raised: "#1c2026",
    ink: "#e6e9ed",
    muted: "#9da7b3",
    line: "#313842",
    accent: "#7cc4f5",
    series: ["#3fa7f0", "#cf6a2f", "#52dfac", "#ee86c8", "#c9a227", "#dde1e6", "#2f7fe0", "#f4836c"],
};

/// The style sheet of the page.
pub(super) fn sheet() -> String {
    let mut sheet = String::new();
    scheme(&mut sheet, &LIGHT);
    sheet.push_str("@media (prefers-color-scheme:dark){");
    scheme(&mut sheet, &DARK);
    sheet.push('}');
    for index in 0..COLOURS {
        let _ = write!(sheet, ".c{index}{{--c:var(--c{index})}}");
    }
    sheet.push_str(REST);
    sheet
}

fn scheme(sheet: &mut String, scheme: &Scheme) {
    let Scheme { ground, raised, ink, muted, line, accent, series } = scheme;
    let _ = write!(
        sheet,
        ":root{{--ground:{ground};--raised:{raised};--ink:{ink};--muted:{muted};--line:{line};--accent:{accent}"
    );
    for (index, colour) in series.iter().enumerate() {
        let _ = write!(sheet, ";--c{index}:{colour}");
    }
    sheet.push_str("}\n");
}

/// All but the colours. 640 pixels divide phones from the rest: each chart is drawn for both, and one of the two is shown.
const REST: &str = r#"
:root{color-scheme:light dark}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",
sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:break-word}
.sheet{max-width:868px;margin:0 auto;padding:56px 24px 96px}
p,li,dd{max-width:72ch}
h1,h2,h3{line-height:1.25;margin:0;font-weight:650;text-wrap:pretty}
h1{font-size:2rem;letter-spacing:-.015em}
h2{font-size:1.5rem;letter-spacing:-.01em}
h3{font-size:1.0625rem}
h4{font-size:.875rem;font-weight:650;margin:24px 0 0}
p{margin:12px 0 0}
a{color:var(--accent);text-underline-offset:2px}
code{font:.875em ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;overflow-wrap:anywhere}
.lead{color:var(--muted);margin-top:6px}
.notice{border-left:3px solid var(--accent);background:var(--raised);padding:10px 16px;margin-top:20px;border-radius:0 6px 6px 0}
.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:6px 24px;margin:28px 0 0;font-size:.9375rem}
.facts dt{color:var(--muted)}
.facts dd{margin:0}
.facts dd span{display:block}
nav{margin-top:36px;padding-top:20px;border-top:1px solid var(--line)}
nav ol{margin:10px 0 0;padding-left:1.5em}
nav li{padding:2px 0}
nav small{color:var(--muted)}
section{margin-top:72px;padding-top:32px;border-top:1px solid var(--line)}
.method,.notes{font-size:.9375rem}
.method{color:var(--muted)}
.notes{margin:16px 0 0;padding-left:1.2em}
.notes li{margin-top:6px}
figure{margin:40px 0 0}
figcaption{margin-bottom:10px}
.bare{margin-top:24px}.bare details{margin-top:0}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 22px;margin:0 0 14px;padding:0;font-size:.8125rem;line-height:1.45}
.legend li{display:flex;gap:8px;max-width:none}
.legend svg{flex:none;overflow:visible}
.legend small{font-size:1em;color:var(--muted)}
.plot{display:block;width:100%;height:auto;font-size:12px}
.wide{display:none}
.narrow{max-width:520px}
.plot text{fill:var(--muted)}
.plot .axis-title{fill:var(--ink)}
.plot .word,.plot .value{fill:var(--ink)}
.plot .word{font-weight:600;stroke:var(--ground);stroke-width:4;paint-order:stroke}
.plot .label{fill:var(--ink);stroke:var(--ground);stroke-width:4;paint-order:stroke}
.grid{stroke:var(--line);stroke-width:1}
.base{stroke:var(--muted);stroke-width:1}
.curve{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.mark{fill:var(--c);stroke:var(--c);stroke-width:1.5;stroke-linejoin:round}
.bar{fill:var(--c);stroke:var(--c);stroke-width:1}
.spread{fill:none;stroke:var(--c);stroke-width:1;opacity:.65}
.bars .spread{stroke:var(--ink);opacity:.8}
.published .curve,.model .curve{stroke-width:1.5}
.published .curve{stroke-dasharray:1 5;stroke-linecap:round;stroke-width:2}
.model .curve{stroke-dasharray:5 4}
.published .mark,.model .mark,.published .bar,.model .bar{fill:var(--ground)}
.model .bar{stroke-dasharray:3 2}
.hint{font-size:.8125rem;color:var(--muted)}
.origin{margin-top:4px}
details{margin-top:12px;font-size:.875rem}
summary{cursor:pointer;color:var(--accent);width:max-content;max-width:100%;padding:4px 0}
.scroll{overflow-x:auto;margin-top:8px;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;width:100%;line-height:1.45}
th,td{padding:8px 12px;text-align:left;vertical-align:top;border-top:1px solid var(--line)}
thead th{border-top:0;background:var(--raised);vertical-align:bottom;font-weight:600;min-width:7em}
tbody th{font-weight:600}
.figures td,.figures th{text-align:right}
.figures th:first-child{text-align:left;white-space:nowrap;position:sticky;left:0;background:var(--raised);min-width:0}
.figures td b{font-weight:600;white-space:nowrap}
td small,th small{display:block;color:var(--muted);font-weight:400;font-size:.8125rem}
.short,.figures td small{white-space:nowrap}
.figures td .remark{white-space:normal}
.words{font-size:.875rem}
.words thead th{min-width:0}
.words thead th.long{min-width:13em}
footer{margin-top:72px;padding-top:20px;border-top:1px solid var(--line);color:var(--muted);font-size:.875rem}
@media (min-width:640px){.wide{display:block}.narrow{display:none}.facts{gap:6px 32px}}
@media (max-width:639px){
.sheet{padding:32px 16px 64px}
h1{font-size:1.625rem}h2{font-size:1.3125rem}
section{margin-top:52px;padding-top:26px}
.facts{grid-template-columns:minmax(0,1fr);gap:0}.facts dd{margin-bottom:10px}
th,td{padding:7px 10px}.figures th:first-child{white-space:normal}
}
@media print{section{break-inside:auto}figure{break-inside:avoid}.sheet{padding:0}}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, by WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two hexadecimal digits")) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_stand_out() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for scheme in [&LIGHT, &DARK] {
            for ground in [scheme.ground, scheme.raised] {
                for colour in scheme.series {
                    assert!(contrast(colour, ground) >= 3.0, "{colour} on {ground}: {:.2}", contrast(colour, ground));
                }
                for text in [scheme.ink, scheme.muted, scheme.accent] {
                    assert!(contrast(text, ground) >= 4.5, "{text} on {ground}: {:.2}", contrast(text, ground));
                }
            }
            for (at, colour) in scheme.series.iter().enumerate() {
                assert!(!scheme.series[..at].contains(colour), "{colour} twice");
            }
        }
    }

    /// A colour as eyes without one kind of cones see it (Viénot, Brettel and Mollon 1999; for blue, Brettel 1997 by one plane), as
    /// linear red, green and blue.
    fn without(kind: usize, colour: &str) -> [f64; 3] {
        const MISSING: [[[f64; 3]; 3]; 3] = [
            [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]],
            [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]],
            [[1.012_77, 0.135_48, -0.148_26], [-0.012_43, 0.868_12, 0.144_31], [0.075_89, 0.805_0, 0.119_11]],
        ];
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two hexadecimal digits")) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        let linear = [part(1), part(3), part(5)];
        MISSING[kind].map(|row| row.iter().zip(linear).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0))
    }

    /// Lightness and two chromatic coordinates (CIELAB, D65), in which distances are as large as they look.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.950_47;
        let y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
        let z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.088_83;
        let [x, y, z] = [x, y, z].map(|t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// The first six, more than which few charts have, are apart by ten, four times what an eye can just see. Markers and dashes
    /// tell all of them apart.
    #[test]
    fn colours_differ_without_colour_vision() {
        for scheme in [&LIGHT, &DARK] {
            for kind in 0..3 {
                for (at, a) in scheme.series.iter().take(6).enumerate() {
                    for b in &scheme.series[..at] {
                        let (p, q) = (lab(without(kind, a)), lab(without(kind, b)));
                        let apart = p.iter().zip(q).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                        assert!(apart >= 10.0, "{a} and {b}, kind {kind}: {apart:.1}");
                    }
                }
            }
        }
    }
}
