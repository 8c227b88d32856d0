// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawing by hand: every mark has a class, and colours are the style sheet's
//! business, so that the same picture works in light, in dark and on paper.

use std::fmt::Write;

/// A drawing that grows.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Which end of a text its position is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty one of this size, in units of about a pixel.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    /// Adds markup as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// A rectangle; `tip` is shown under the pointer.
    pub(super) fn rect(&mut self, class: &str, [x, y, w, h]: [f64; 4], tip: &str) {
        let (x, y, w, h) = (short(x), short(y), short(w), short(h));
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}">"#
        );
        self.tip(tip);
        self.raw("</rect>");
    }

    /// A circle.
    pub(super) fn dot(&mut self, class: &str, x: f64, y: f64, tip: &str) {
        let (x, y) = (short(x), short(y));
        let _ = write!(
            self.body,
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="3.5">"#
        );
        self.tip(tip);
        self.raw("</circle>");
    }

    /// Any outline.
    pub(super) fn path(&mut self, class: &str, d: &str, tip: &str) {
        let _ = write!(self.body, r#"<path class="{class}" d="{d}">"#);
        self.tip(tip);
        self.raw("</path>");
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let d = format!(
            "M{} {}L{} {}",
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1)
        );
        self.path(class, &d, "");
    }

    /// A line of text; `y` is its base line.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (short(x), short(y));
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    fn tip(&mut self, tip: &str) {
        if !tip.is_empty() {
            let _ = write!(self.body, "<title>{}</title>", escape(tip));
        }
    }

    /// The finished element; `label` is what it shows, for those who do not see it.
    pub(super) fn finish(self, label: &str) -> String {
        format!(
            r#"<svg role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>"#,
            escape(label),
            short(self.width),
            short(self.height),
            self.body
        )
    }
}

/// A number with at most two decimals and nothing that is not needed.
pub(super) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

/// Text for a document.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// An axis: values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Position of zero.
    pub(super) at: f64,
    /// Length of the axis.
    pub(super) length: f64,
    /// The value at its end.
    pub(super) max: f64,
}

impl Scale {
    /// From zero to a little more than `max`.
    pub(super) fn up_to(max: f64, at: f64, length: f64) -> Self {
        let max = if max > 0.0 { max * 1.03 } else { 1.0 };
        Self { at, length, max }
    }

    /// Where a value is; what is beyond the end is at the end.
    pub(super) fn x(&self, value: f64) -> f64 {
        self.at + (value / self.max).clamp(0.0, 1.0) * self.length
    }

    /// Round values along it: 1, 2 or 5 times a power of ten apart, at most
    /// `most` of them after zero.
    pub(super) fn ticks(&self, most: u32) -> Vec<f64> {
        let rough = self.max / f64::from(most.max(1));
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| self.max / step <= f64::from(most))
            .unwrap_or(10.0 * power);
        (0..=most)
            .map(|n| f64::from(n) * step)
            .take_while(|value| *value <= self.max)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = |max: f64, most| {
            Scale {
                at: 0.0,
                length: 1.0,
                max,
            }
            .ticks(most)
        };
        assert_eq!(ticks(9000.0, 5), [0.0, 2000.0, 4000.0, 6000.0, 8000.0]);
        assert_eq!(ticks(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.7, 3), [0.0, 0.5]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [short(1.0), short(-0.001), short(2.345)],
            ["1", "0", "2.35"]
        );
    }

    #[test]
    fn markup_in_names_is_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("a", 1.0, 2.0, Anchor::Start, "<b>&\"");
        assert!(svg.finish("x").contains("&lt;b&gt;&amp;&quot;"));
    }
}
