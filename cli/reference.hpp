// The fp64 reference path as an oracle: of a whole problem, or of pieces of it where the whole would take too long.
#pragma once

#include <string>
#include <vector>

#include "cli/tensors.hpp"

namespace convnorm::cli {

// Samples and convolution channels whose outputs depend on nothing outside of them.
struct Piece {
  int64_t sample_begin, sample_count;
  int64_t channel_begin, channel_count;  // of the C_out
};

// The whole problem if it costs at most `flop_budget`; else samples spread over the batch, and where one sample is too
// much, the first and last norm groups of one. Always at least one piece that can be computed alone.
std::vector<Piece> affordable_pieces(const convnorm_problem& problem, double flop_budget);

// "all", or which samples and channels.
std::string pieces_text(const convnorm_problem& problem, const std::vector<Piece>& pieces);

// The part of y that belongs to `piece`, widened to f32.
std::vector<float> piece_of_output(const convnorm_problem& problem, const Tensor& y, const Piece& piece);

// (n, c, l) of element `index` of a piece of y.
struct Position {
  int64_t n, c, l;
};
Position position_in_output(const convnorm_problem& problem, const Piece& piece, int64_t index);

// The reference path on the widened inputs, stored in f32: the types of 16 bits round nothing but the inputs.
std::vector<float> reference_output(const Operands& operands, const Piece& piece, int32_t threads);

// Conditioning: the largest over channels of mean(sum |w||x|) / std(z), where the mean runs over positions and the
// deviation is what the norm divides by (of the group; of the channel when g=0). Errors of split products grow with it.
// Of the first sample; of its first positions where that sample is large.
double conditioning(const Operands& operands, int32_t threads);

}  // namespace convnorm::cli
