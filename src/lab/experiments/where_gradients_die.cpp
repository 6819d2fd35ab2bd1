#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;

Section where_gradients_die(const Lab& lab) {
  Section section{
      .name = "gradients",
      .title = "When does softmax saturate, and why do gradients vanish?",
      .text =
          "A gradient passes softmax through its slopes ∂pᵢ/∂sⱼ = pᵢ(δᵢⱼ − pⱼ). <b>When one "
          "probability is nearly 1, all slopes are nearly 0</b>: whatever the rest of the "
          "network wants, it does not reach the scores."};
  section.figures = {jacobian_figure(lab), norm_figure(lab)};
  for (Figure& figure : gradient_figures(lab.part(0, 0.2)))
    section.figures.push_back(std::move(figure));
  for (Figure& figure : training_figures(lab.part(0.2, 1)))
    section.figures.push_back(std::move(figure));
  section.takeaway =
      "Saturation is one probability near 1: the slopes of softmax are then near 0 and the typical "
      "query gets no gradient. Watch the median and the entropy; a mean is carried by the rare "
      "rows "
      "that are still alive.";
  return section;
}

}  // namespace rapt::lab
