"""The colours and the legend of pictures of several runs."""

from matplotlib.figure import Figure

from pretrain.analysis.panels import draw_over_training, legend_of_blocks


def test_a_block_has_one_colour_in_all_panels_and_the_legend_names_those_of_the_deepest_run():
    figure = Figure()
    shallow, deep = figure.subplots(1, 2)
    measured = {"shallow": {0: [1.0] * 2, 1: [2.0] * 2}, "deep": {0: [1.0] * 5, 1: [2.0] * 5}}
    draw_over_training([shallow, deep], measured, "value")
    colours = [[line.get_color() for line in axes.lines] for axes in (shallow, deep)]
    assert colours[0] == colours[1][:2] and len(set(colours[1])) == 5
    legend_of_blocks(figure, [shallow, deep])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["1", "2", "3", "4", "5"]
