// convnorm info: version, instruction sets, threads, devices.
#include <fmt/format.h>

#include <memory>

#include "cli/library.hpp"
#include "cli/options.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {

void add_info(CLI::App& app, ExitStatus& status) {
  const auto json = std::make_shared<bool>(false);
  CLI::App& verb = *app.add_subcommand("info", "Show what this build and this machine offer");
  add_json_flag(verb, *json);
  add_examples(verb, {"convnorm info", "convnorm info --json"});
  verb.callback([json, &status] {
    std::string text = library_info(*json ? CONVNORM_JSON : CONVNORM_TEXT);
    if (!text.ends_with('\n')) text += '\n';
    fmt::print("{}", text);
    status = kMet;
  });
}

}  // namespace convnorm::cli
