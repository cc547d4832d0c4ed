// json_lines KEY...: status 0 if stdin holds at least one line, and every line is a JSON object with all the keys.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

int main(int argc, char** argv) {
  int lines = 0;
  for (std::string line; std::getline(std::cin, line); ++lines) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
      std::cerr << "not a JSON object: " << line << '\n';
      return 1;
    }
    for (int i = 1; i < argc; ++i) {
      if (!object.contains(argv[i])) {
        std::cerr << "no key " << argv[i] << " in " << line << '\n';
        return 1;
      }
    }
  }
  return lines > 0 ? 0 : 1;
}
