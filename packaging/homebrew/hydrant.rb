# Homebrew formula for Linux: brew install --HEAD ./packaging/homebrew/hydrant.rb
class Hydrant < Formula
  desc "Process manager for parallel (MPI) jobs"
  license any_of: ["MIT", "Apache-2.0"]
  head "file:///path/to/hydrant", using: :git, branch: "main"

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "packaging/install", "--prefix", prefix
    generate_completions_from_executable(bin/"hydrant", "completions")
  end

  test do
    assert_match "4 ranks", shell_output("#{bin}/hydrant run -n 4 #{bin}/hydrant probe")
  end
end
